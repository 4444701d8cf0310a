// Goal: with TLS a server answers nobody whose certificate another authority signed, or who has none, and a client no server whose name is not
// the dialled one; renewed files are taken up; files that cannot work are named at the start. Certificates are those of deploy/make_certs.sh.
#include "common/rpc/credentials.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/time/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"

namespace cairn {
namespace {

using testing::HasSubstr;
constexpr absl::Duration kLong = absl::Seconds(30);  // a test that waits so long has failed

class Credentials : public testing::Test {
 protected:
  Credentials() {
    std::string pattern = testing::TempDir() + "cairn-tls-XXXXXX";
    dir_ = mkdtemp(pattern.data());
  }
  ~Credentials() override { std::filesystem::remove_all(dir_); }

  // dir_/authority/name of the first name.
  std::string Make(const std::string& authority, const std::string& names, const std::string& days = "1") {
    const char* source = std::getenv("CAIRN_SOURCE");
    EXPECT_NE(source, nullptr);
    const std::string command = "CAIRN_CERT_DAYS=" + days + " '" + source + "/deploy/make_certs.sh' '" + dir_ + "/" + authority + "' " +
                                names + " > /dev/null";
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    return dir_ + "/" + authority + "/" + names.substr(0, names.find(','));
  }
  static void Write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }
  static std::string Read(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  // A copy of `from` whose `file` is altered.
  std::string Copy(const std::string& from, const std::string& file, const std::string& text) {
    const std::string to = dir_ + "/copy-" + std::to_string(++copies_);
    std::filesystem::copy(from, to);
    Write(to + "/" + file, text);
    return to;
  }

  std::string dir_;
  int copies_ = 0;
};

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
  EXPECT_THAT(Error(Copy(good, "ca.crt", Read(other + "/ca.crt"))), HasSubstr("tls.crt: is not accepted by the authorities of "));
  EXPECT_THAT(Error(Make("one", "late", "-1")), HasSubstr("certificate has expired"));
}

// Each case is a process of its own: credentials are of the process, and for good.
int ExitCode(const std::function<int()>& child) {
  const pid_t pid = fork();
  if (pid == 0) _exit(child());
  int status = -1;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

std::shared_ptr<grpc::ChannelCredentials> Plain() { return grpc::InsecureChannelCredentials(); }
// As somebody with these files dials; without a certificate where `identity` is empty.
std::shared_ptr<grpc::ChannelCredentials> With(const std::string& authorities, const std::string& certificate, const std::string& key) {
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = authorities;
  options.pem_cert_chain = certificate;
  options.pem_private_key = key;
  return grpc::SslCredentials(options);
}

bool Connects(const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials, absl::Duration patience) {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto channel = grpc::CreateCustomChannel(address, credentials, args);
  // Ready, or the first failure.
  auto state = channel->GetState(true);
  const auto end = absl::ToChronoTime(absl::Now() + patience);
  while (state != GRPC_CHANNEL_READY && state != GRPC_CHANNEL_TRANSIENT_FAILURE) {
    if (!channel->WaitForStateChange(state, end)) return false;
    state = channel->GetState(true);
  }
  // With TLS 1.3 a client is done before the server has looked at its certificate: only an answer tells.
  if (state != GRPC_CHANNEL_READY) return false;
  grpc::ClientContext context;
  context.set_deadline(end);
  const grpc::Slice empty("");
  const grpc::ByteBuffer request(&empty, 1);
  grpc::ByteBuffer answer;
  grpc::Status status;
  grpc::CompletionQueue done;
  const auto call = grpc::GenericStub(channel).PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", request, &done);
  call->StartCall();
  call->Finish(&answer, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  return done.Next(&tag, &ok) && ok && status.ok();
}

// What an issuer below a root hands out, as cert-manager does: ca.crt is that issuer, signed by a root that nobody here has.
TEST_F(Credentials, AnAuthorityThatAnotherOneSignedIsEnough) {
  const std::string issuer = dir_ + "/between";
  Make("above", "unused");
  std::filesystem::create_directory(issuer);
  const std::string root = dir_ + "/above/ca", command =
      "cd '" + issuer + "' && openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out ca.key 2> /dev/null && "
      "printf 'basicConstraints=critical,CA:TRUE\n' > ca.ext && openssl req -new -key ca.key -subj '/CN=issuer' | "
      "openssl x509 -req -CA '" + root + ".crt' -CAkey '" + root + ".key' -set_serial 7 -days 1 -extfile ca.ext -out ca.crt 2> /dev/null";
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  const std::string host = Make("between", "host-a"), stranger = Make("above", "host-a");
  EXPECT_THAT(Error(Copy(stranger, "ca.crt", Read(host + "/ca.crt"))), HasSubstr("tls.crt: is not accepted by the authorities of "))
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
    if (Connects(tcp, With(ca, "", ""), absl::Seconds(2))) return 6;                          // nobody
    if (Connects(tcp, With(ca, crt(stranger), key(stranger)), absl::Seconds(2))) return 7;    // somebody else's
    if (Connects(tcp, With(Read(stranger + "/ca.crt"), crt(user), key(user)), absl::Seconds(2))) return 8;  // it does not trust this server
    // Where a name leads to, but is not in the certificate: 127.0.0.2 is this machine.
    RpcServerOptions elsewhere;
    elsewhere.listen = "127.0.0.2:0";
    const auto unnamed = RpcServer::Start(elsewhere, {});
    if (!unnamed.ok()) return 9;
    if (Connects((*unnamed)->Address(""), TcpChannelCredentials(), absl::Seconds(2))) return 10;
    // The socket is this user's.
    if (!Connects("unix:" + options.unix_socket, Plain(), kLong)) return 11;
    const auto mode = std::filesystem::status(options.unix_socket).permissions();
    return mode == (std::filesystem::perms::owner_read | std::filesystem::perms::owner_write) ? 0 : 12;
  });
  EXPECT_EQ(code, 0);
}

// `cairn up` and daemons wait for signals on one thread: another one that takes them would end the process.
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
    if (!UseTls(host, absl::Seconds(1)).ok()) return 1;
    const auto server = RpcServer::Start({}, {});
    if (!server.ok()) return 2;
    const auto alice = With(Read(user + "/ca.crt"), Read(user + "/tls.crt"), Read(user + "/tls.key"));
    if (Connects((*server)->Address(""), alice, absl::Seconds(2))) return 3;
    // The cluster changes to the other authority.
    const std::string renewed = Make("two", "host-a");
    for (const char* file : {"ca.crt", "tls.key", "tls.crt"}) std::filesystem::rename(renewed + "/" + file, host + "/" + file);
    const absl::Time end = absl::Now() + kLong;
    while (!Connects((*server)->Address(""), alice, kLong)) {
      if (absl::Now() > end) return 4;
    }
    return 0;
  });
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace cairn
