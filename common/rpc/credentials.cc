#include "common/rpc/credentials.h"

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <signal.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/log.h"
#include "common/rpc/tls_files.h"

namespace cairn {
namespace {

class AllSignalsBlocked {
 public:
  AllSignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~AllSignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

// Of the process; written once by UseTls, never taken down: gRPC's threads may use it to the last.
struct Credentials {
  std::shared_ptr<grpc::ServerCredentials> server = grpc::InsecureServerCredentials();
  std::shared_ptr<grpc::ChannelCredentials> channel = grpc::InsecureChannelCredentials();
  bool tls = false;
};
Credentials& OfThisProcess() {
  static Credentials& credentials = *new Credentials;
  return credentials;
}

// Reads the files again and again, and shows gRPC those that can work. Lives as long as the process.
class TlsWatch {
 public:
  static absl::StatusOr<TlsWatch*> Start(const std::string& directory, absl::Duration interval, TlsNotice notice) {
    CAIRN_ASSIGN_OR_RETURN(TlsFiles files, ReadTlsFiles(directory));
    if (const std::string open = KeyIsOpenToOthers(directory); !open.empty()) notice(true, open);
    CAIRN_ASSIGN_OR_RETURN(std::unique_ptr<ShownFile> authorities, ShownFile::Create(files.authorities));
    CAIRN_ASSIGN_OR_RETURN(std::unique_ptr<ShownFile> identity, ShownFile::Create(files.identity));
    auto* watch = new TlsWatch(directory, std::move(notice), std::move(files), std::move(authorities), std::move(identity));
    std::thread([watch, interval] {
      while (true) {
        absl::SleepFor(interval);
        watch->Look();
      }
    }).detach();
    return watch;
  }

  std::string authorities() const { return shown_authorities_->path(); }
  std::string identity() const { return shown_identity_->path(); }

 private:
  TlsWatch(const std::string& directory, TlsNotice notice, TlsFiles files, std::unique_ptr<ShownFile> authorities,
           std::unique_ptr<ShownFile> identity)
      : directory_(directory), notice_(std::move(notice)), files_(std::move(files)), shown_authorities_(std::move(authorities)),
        shown_identity_(std::move(identity)) {}

  void Look() {
    absl::StatusOr<TlsFiles> files = ReadTlsFiles(directory_);
    const absl::Status status = files.ok() ? Take(*std::move(files)) : files.status();
    // Said once, and only of what was there twice: files may be read while they are being replaced.
    if (!status.ok() && status == wrong_ && status != said_) {
      notice_(true, absl::StrCat(status.message(), "; connections are made with the files before it"));
      said_ = status;
    }
    if (status.ok()) said_ = status;
    wrong_ = status;
  }

  absl::Status Take(TlsFiles files) {
    if (files == files_) return absl::OkStatus();
    CAIRN_RETURN_IF_ERROR(shown_authorities_->Replace(files.authorities));
    CAIRN_RETURN_IF_ERROR(shown_identity_->Replace(files.identity));
    files_ = std::move(files);
    notice_(false, absl::StrCat("--tls-dir: ", directory_, ": the renewed files are in use"));
    if (const std::string open = KeyIsOpenToOthers(directory_); !open.empty()) notice_(true, open);
    return absl::OkStatus();
  }

  const std::string directory_;
  const TlsNotice notice_;
  TlsFiles files_;  // in use
  const std::unique_ptr<ShownFile> shown_authorities_, shown_identity_;
  absl::Status wrong_, said_;
};

}  // namespace

void LogTlsNotice(bool warning, const std::string& text) {
  warning ? LogWarning("%s", text) : LogInfo("%s", text);
}

absl::Status UseTls(const std::string& directory, absl::Duration refresh, TlsNotice notice) {
  using namespace grpc::experimental;  // NOLINT: gRPC 1.51 has reloading credentials there alone
  if (directory.empty()) return absl::OkStatus();
  // The threads that gRPC and we start take no signals: they are for those of the program that wait for them.
  const AllSignalsBlocked blocked;
  // Half of the time until the files are looked at, half of it until gRPC looks at what it is shown.
  const auto seconds = std::max<int64_t>(1, absl::ToInt64Seconds(refresh / 2));
  CAIRN_ASSIGN_OR_RETURN(const TlsWatch* watch, TlsWatch::Start(directory, absl::Seconds(seconds), std::move(notice)));
  const auto provider = std::make_shared<FileWatcherCertificateProvider>(watch->identity(), watch->identity(), watch->authorities(),
                                                                         static_cast<unsigned>(seconds));
  TlsServerCredentialsOptions server(provider);
  server.watch_root_certs();
  server.watch_identity_key_cert_pairs();
  server.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  TlsChannelCredentialsOptions channel;
  channel.set_certificate_provider(provider);
  channel.watch_root_certs();
  channel.watch_identity_key_cert_pairs();
  Credentials& mine = OfThisProcess();
  mine.server = TlsServerCredentials(server);
  mine.channel = TlsCredentials(channel);
  mine.tls = true;
  return absl::OkStatus();
}

bool UsesTls() { return OfThisProcess().tls; }

std::string TlsHint(const std::string& error) {
  // Nobody was there to speak anything.
  for (const char* nobody : {"refused", "unreachable", "No route to host", "Domain name not found", "DNS"}) {
    if (absl::StrContains(error, nobody)) return "";
  }
  if (UsesTls()) return "; does it speak TLS, with a certificate that --tls-dir's ca.crt accepts and that has this name?";
  return "; does it speak TLS (--tls-dir)?";
}

std::shared_ptr<grpc::ServerCredentials> TcpServerCredentials() { return OfThisProcess().server; }
std::shared_ptr<grpc::ChannelCredentials> TcpChannelCredentials() { return OfThisProcess().channel; }

}  // namespace cairn
