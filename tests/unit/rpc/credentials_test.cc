// Goal: with TLS a server answers nobody whose certificate another authority signed, or who has none, and a client no
// server whose name is not the dialled one; renewed files are taken up; files that cannot work are named at the start.
// Certificates are those of deploy/make_certs.sh.
#include "common/rpc/credentials.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "common/rpc/tls_files.h"
#include "tests/unit/rpc/credentials_testing.h"

namespace cairn {
namespace {

using testing::HasSubstr;

std::string Error(const std::string& directory) {
  const absl::Status status = UseTls(directory);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST_F(Credentials, FilesThatCannotWorkAreNamed) {
  const std::string good = Make("one", "host-a"), other = Make("two", "host-a"), peer = Make("one", "host-b");
  EXPECT_THAT(Error(dir_ + "/none"), HasSubstr("/none/ca.crt: cannot be read: No such file"));
  EXPECT_THAT(Error(Copy(good, "ca.crt", "")), HasSubstr("ca.crt: holds no certificate in PEM"));
  EXPECT_THAT(Error(Copy(good, "tls.crt", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")),
              HasSubstr("tls.crt: holds no certificate in PEM"));
  EXPECT_THAT(Error(Copy(good, "tls.key", "nonsense")), HasSubstr("tls.key: holds no private key"));
  EXPECT_THAT(Error(Copy(good, "tls.key", Read(peer + "/tls.key"))), HasSubstr("tls.key: is not the key of "));
  EXPECT_THAT(Error(Copy(good, "ca.crt", Read(other + "/ca.crt"))),
              HasSubstr("tls.crt: is not accepted by the authorities of "));
  EXPECT_THAT(Error(Make("one", "late", "-1")), HasSubstr("certificate has expired"));
}

std::shared_ptr<grpc::ChannelCredentials> Plain() { return grpc::InsecureChannelCredentials(); }
// The credentials of somebody with these files; without a certificate if `identity` is empty.
std::shared_ptr<grpc::ChannelCredentials> With(const std::string& authorities, const std::string& certificate,
                                               const std::string& key) {
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = authorities;
  options.pem_cert_chain = certificate;
  options.pem_private_key = key;
  return grpc::SslCredentials(options);
}

bool Connects(const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
              absl::Duration patience) {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto channel = grpc::CreateCustomChannel(address, credentials, args);
  // Waits until it is ready or fails for the first time.
  auto state = channel->GetState(true);
  const auto end = absl::ToChronoTime(absl::Now() + patience);
  while (state != GRPC_CHANNEL_READY && state != GRPC_CHANNEL_TRANSIENT_FAILURE) {
    if (!channel->WaitForStateChange(state, end)) return false;
    state = channel->GetState(true);
  }
  // With TLS 1.3 a client is done before the server has checked its certificate: only an answer tells.
  if (state != GRPC_CHANNEL_READY) return false;
  grpc::ClientContext context;
  context.set_deadline(end);
  const grpc::Slice empty("");
  const grpc::ByteBuffer request(&empty, 1);
  grpc::ByteBuffer answer;
  grpc::Status status;
  grpc::CompletionQueue done;
  const auto call =
      grpc::GenericStub(channel).PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", request, &done);
  call->StartCall();
  call->Finish(&answer, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  return done.Next(&tag, &ok) && ok && status.ok();
}

// A user whose certificate was issued by another authority than the one in his own ca.crt, or by an intermediate that
// only the nodes' ca.crt has.
TEST_F(Credentials, AUsersCertificateIsJudgedByTheNodesAlone) {
  const std::string good = Make("one", "alice"), other = Make("two", "alice"), peer = Make("one", "host-b"),
                    late = Make("one", "late", "-1");
  const std::string mixed = Copy(good, "ca.crt", Read(other + "/ca.crt"));
  EXPECT_TRUE(ReadTlsFiles(mixed, TlsOwner::kUser).ok());
  const absl::Duration left = ReadTlsFiles(mixed, TlsOwner::kUser)->expires - absl::Now();
  EXPECT_GT(left, absl::Hours(23)) << "it is made for a day";
  EXPECT_LT(left, absl::Hours(25));
  EXPECT_THAT(ReadTlsFiles(mixed, TlsOwner::kNode).status().message(),
              HasSubstr("is not accepted by the authorities of "));
  const auto error = [](const std::string& directory) {
    return std::string(ReadTlsFiles(directory, TlsOwner::kUser).status().message());
  };
  EXPECT_THAT(error(late), HasSubstr("tls.crt: certificate has expired"));
  EXPECT_THAT(error(Copy(good, "tls.key", Read(peer + "/tls.key"))), HasSubstr("tls.key: is not the key of "));
  EXPECT_THAT(error(Copy(good, "ca.crt", "")), HasSubstr("ca.crt: holds no certificate in PEM"));
  const int code = ExitCode([&] {
    Write(peer + "/ca.crt", Read(good + "/ca.crt") + Read(other + "/ca.crt"));  // the node takes users of both
    if (!UseTls(peer).ok()) return 1;
    const auto server = RpcServer::Start({}, {});
    if (!server.ok()) return 2;
    return Connects((*server)->Address(""),
                    With(Read(good + "/ca.crt"), Read(other + "/tls.crt"), Read(other + "/tls.key")), kLong)
               ? 0
               : 3;
  });
  EXPECT_EQ(code, 0);
}

// If there is not enough memory for all of them (here: a limit of files' sizes), none is replaced.
TEST_F(Credentials, ShownFilesAreReplacedTogetherOrNotAtAll) {
  const auto a = ShownFile::Create("old a"), b = ShownFile::Create("old b");
  ASSERT_TRUE(a.ok() && b.ok());
  const std::string small = "new a", large(4096, 'b');
  const int code = ExitCode([&] {
    signal(SIGXFSZ, SIG_IGN);  // as every daemon
    const rlimit limit{1024, 1024};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
    if (ShownFile::ReplaceAll({{a->get(), &small}, {b->get(), &large}}).ok()) return 2;
    return Read((*a)->path()) == "old a" && Read((*b)->path()) == "old b" ? 0 : 3;
  });
  EXPECT_EQ(code, 0);
  EXPECT_TRUE(ShownFile::ReplaceAll({{a->get(), &small}, {b->get(), &large}}).ok());
  EXPECT_EQ(Read((*a)->path()), small);
  EXPECT_EQ(Read((*b)->path()), large);
}

// Certificates of an issuer below a root, as cert-manager makes them: ca.crt is that issuer, signed by a root that
// nobody here has.
TEST_F(Credentials, AnAuthorityThatAnotherOneSignedIsEnough) {
  const std::string issuer = dir_ + "/between";
  Make("above", "unused");
  std::filesystem::create_directory(issuer);
  const std::string
      root = dir_ + "/above/ca",
      command =
          "cd '" + issuer +
          "' && openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out ca.key 2> /dev/null && "
          "printf 'basicConstraints=critical,CA:TRUE\n' > ca.ext && openssl req -new -key ca.key -subj '/CN=issuer' | "
          "openssl x509 -req -CA '" +
          root + ".crt' -CAkey '" + root + ".key' -set_serial 7 -days 1 -extfile ca.ext -out ca.crt 2> /dev/null";
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  const std::string host = Make("between", "host-a"), stranger = Make("above", "host-a");
  EXPECT_THAT(Error(Copy(stranger, "ca.crt", Read(host + "/ca.crt"))),
              HasSubstr("tls.crt: is not accepted by the authorities of "))
      << "the root's own are not the issuer's";
  const int code = ExitCode([&] {
    if (!UseTls(host).ok()) return 1;
    const auto server = RpcServer::Start({}, {});
    if (!server.ok()) return 2;
    return Connects((*server)->Address(""), TcpChannelCredentials(), kLong) ? 0 : 3;  // a handshake takes it too
  });
  EXPECT_EQ(code, 0);
}

TEST_F(Credentials, OnlyCertificatesOfTheAuthorityPassAndOnlyForTheirNames) {
  const std::string host = Make("one", "host-a"), user = Make("one", "alice"), stranger = Make("two", "alice");
  const int code = ExitCode([&] {
    if (!UseTls(host).ok() || !UsesTls()) return 1;
    RpcServerOptions options;
    options.unix_socket = dir_ + "/socket";
    const auto server = RpcServer::Start(options, {});
    if (!server.ok()) return 2;
    const std::string address = (*server)->Address("");
    const std::string tcp = address.substr(0, address.find(','));
    const auto crt = [](const std::string& of) { return Read(of + "/tls.crt"); };
    const auto key = [](const std::string& of) { return Read(of + "/tls.key"); };
    const std::string ca = Read(host + "/ca.crt");
    if (!Connects(tcp, With(ca, crt(user), key(user)), kLong)) return 3;
    if (!Connects(tcp, TcpChannelCredentials(), kLong)) return 4;
    if (Connects(tcp, Plain(), absl::Seconds(2))) return 5;
    if (Connects(tcp, With(ca, "", ""), absl::Seconds(2))) return 6;                        // nobody
    if (Connects(tcp, With(ca, crt(stranger), key(stranger)), absl::Seconds(2))) return 7;  // somebody else's
    if (Connects(tcp, With(Read(stranger + "/ca.crt"), crt(user), key(user)), absl::Seconds(2)))
      return 8;  // it does not trust this server
    // An address that the name resolves to but that is not in the certificate: 127.0.0.2 is this machine.
    RpcServerOptions elsewhere;
    elsewhere.listen = "127.0.0.2:0";
    const auto unnamed = RpcServer::Start(elsewhere, {});
    if (!unnamed.ok()) return 9;
    if (Connects((*unnamed)->Address(""), TcpChannelCredentials(), absl::Seconds(2))) return 10;
    // The socket belongs to this user.
    if (!Connects("unix:" + options.unix_socket, Plain(), kLong)) return 11;
    const auto mode = std::filesystem::status(options.unix_socket).permissions();
    return (mode & (std::filesystem::perms::group_all | std::filesystem::perms::others_all)) ==
                   std::filesystem::perms::none
               ? 0
               : 12;
  });
  EXPECT_EQ(code, 0);
}

// `cairn up` and daemons wait for signals on one thread: if another thread took a signal, the process would end.
TEST_F(Credentials, ItsThreadsTakeNoSignals) {
  const std::string host = Make("one", "host-a");
  const int code = ExitCode([&] {
    if (!UseTls(host).ok()) return 1;
    sigset_t term;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &term, nullptr);
    kill(getpid(), SIGTERM);
    int number = 0;
    return sigwait(&term, &number) == 0 && number == SIGTERM ? 0 : 2;
  });
  EXPECT_EQ(code, 0);
}

TEST_F(Credentials, RenewedFilesAreTakenUpWithoutARestart) {
  const std::string host = Make("one", "host-a"), user = Make("two", "alice");
  const int code = ExitCode([&] {
    if (!UseTls(host, absl::Seconds(2)).ok()) return 1;
    const auto server = RpcServer::Start({}, {});
    if (!server.ok()) return 2;
    const auto alice = With(Read(user + "/ca.crt"), Read(user + "/tls.crt"), Read(user + "/tls.key"));
    if (Connects((*server)->Address(""), alice, absl::Seconds(2))) return 3;
    // The cluster changes to the other authority.
    const std::string renewed = Make("two", "host-a");
    for (const char* file : {"ca.crt", "tls.key", "tls.crt"})
      std::filesystem::rename(renewed + "/" + file, host + "/" + file);
    const absl::Time end = absl::Now() + kLong;
    while (!Connects((*server)->Address(""), alice, kLong)) {
      if (absl::Now() > end) return 4;
    }
    return 0;
  });
  EXPECT_EQ(code, 0);
}

// The notices of UseTls, for a thread that waits for them.
class Notices {
 public:
  TlsNotice Take() {
    return [this](bool warning, const std::string& text) {
      absl::MutexLock lock(&mutex_);
      said_.push_back((warning ? "warning: " : "") + text);
    };
  }
  bool WaitFor(const std::string& text) {
    absl::MutexLock lock(&mutex_);
    const auto said = [&] {
      mutex_.AssertHeld();
      return std::any_of(said_.begin(), said_.end(),
                         [&](const std::string& line) { return line.find(text) != std::string::npos; });
    };
    return mutex_.AwaitWithTimeout(absl::Condition(&said), kLong);
  }
  size_t count() {
    absl::MutexLock lock(&mutex_);
    return said_.size();
  }

 private:
  absl::Mutex mutex_;
  std::vector<std::string> said_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(Credentials, AHalfRenewedPairIsSaidAndTheOneBeforeStaysInUse) {
  const std::string host = Make("one", "host-a");
  std::filesystem::copy(host, dir_ + "/old");
  const std::string renewed = Make("one", "host-a", "2");
  const std::string used = dir_ + "/old";
  const int code = ExitCode([&] {
    Notices& notices = *new Notices;
    if (!UseTls(used, absl::Seconds(2), notices.Take()).ok()) return 1;
    const auto server = RpcServer::Start({}, {});
    if (!server.ok()) return 2;
    const auto connects = [&] { return Connects((*server)->Address(""), TcpChannelCredentials(), kLong); };
    if (!connects()) return 3;
    std::filesystem::rename(renewed + "/tls.crt", used + "/tls.crt");
    if (!notices.WaitFor("warning: --tls-dir: " + used + "/tls.key: is not the key of " + used +
                         "/tls.crt; connections still use"))
      return 4;
    if (!connects() || CertificateExpiry() > absl::Now() + absl::Hours(25)) return 5;
    std::filesystem::rename(renewed + "/tls.key", used + "/tls.key");
    if (!notices.WaitFor("the renewed files are in use")) return 6;
    if (notices.count() != 2) return 7;  // each once
    if (CertificateExpiry() < absl::Now() + absl::Hours(47)) return 9;
    return connects() ? 0 : 8;
  });
  EXPECT_EQ(code, 0);
}

TEST_F(Credentials, AKeyThatOthersCanReadIsSaid) {
  const std::string host = Make("one", "host-a");
  using std::filesystem::perms;
  std::filesystem::permissions(host + "/tls.key", perms::owner_read | perms::group_read);
  std::filesystem::permissions(host, perms::all);
  EXPECT_EQ(KeyIsOpenToOthers(host), "");
  std::filesystem::permissions(host + "/tls.key", perms::owner_read | perms::others_read);
  EXPECT_THAT(KeyIsOpenToOthers(host), HasSubstr("tls.key: mode 404: any user of this machine can read the key"));
  const int code = ExitCode([&] {
    Notices& notices = *new Notices;
    return UseTls(host, kTlsRefresh, notices.Take()).ok() && notices.WaitFor("warning: --tls-dir: ") ? 0 : 1;
  });
  EXPECT_EQ(code, 0);
  std::filesystem::permissions(host, perms::owner_all);  // nobody else gets to it
  EXPECT_EQ(KeyIsOpenToOthers(host), "");
}

}  // namespace
}  // namespace cairn
