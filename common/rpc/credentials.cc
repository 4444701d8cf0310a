#include "common/rpc/credentials.h"

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/base/log.h"
#include "common/rpc/caller_certificate.h"
#include "common/rpc/token.h"

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

// The credentials of the process. UseTls writes them once. They are never destroyed, since gRPC's threads may use them
// until the process ends.
struct Credentials {
  std::shared_ptr<grpc::ServerCredentials> server = grpc::InsecureServerCredentials();
  std::shared_ptr<grpc::ChannelCredentials> channel = grpc::InsecureChannelCredentials();
  Caller caller = {.unrestricted = true};
  bool tls = false;
  bool insecure = false;
  std::atomic<absl::Time> expires = absl::InfiniteFuture();
};
Credentials& OfThisProcess() {
  static Credentials& credentials = *new Credentials;
  return credentials;
}

// Passes valid files on to gRPC. Lives as long as the process.
class TlsWatch {
 public:
  static absl::StatusOr<TlsWatch*> Start(const std::string& directory, TlsOwner owner, absl::Duration interval,
                                         TlsNotice notice) {
    CAIRN_ASSIGN_OR_RETURN(TlsFiles files, ReadTlsFiles(directory, owner));
    if (const std::string open = KeyIsOpenToOthers(directory); !open.empty()) notice(true, open);
    CAIRN_ASSIGN_OR_RETURN(std::unique_ptr<ShownFile> authorities, ShownFile::Create(files.authorities));
    CAIRN_ASSIGN_OR_RETURN(std::unique_ptr<ShownFile> identity, ShownFile::Create(files.identity));
    Revoke(files, absl::Now(), notice);
    auto* watch = new TlsWatch(std::move(authorities), std::move(identity), notice);
    std::thread([watch, interval,
                 renewal = TlsRenewal(
                     directory, owner, std::move(files), [watch](const TlsFiles& f) { return watch->Show(f); },
                     std::move(notice))]() mutable {
      while (true) {
        absl::SleepFor(interval);
        renewal.Look();
      }
    }).detach();
    return watch;
  }

  std::string authorities() const { return authorities_->path(); }
  std::string identity() const { return identity_->path(); }

 private:
  TlsWatch(std::unique_ptr<ShownFile> authorities, std::unique_ptr<ShownFile> identity, TlsNotice notice)
      : authorities_(std::move(authorities)), identity_(std::move(identity)), notice_(std::move(notice)) {}

  // The list of `files`, which were checked.
  static void Revoke(const TlsFiles& files, absl::Time now, const TlsNotice& notice) {
    if (files.revoked.empty()) {
      if (HasRevocations())
        notice(true, "--tls-dir: crl.pem is gone; the list before stays in use until this process is restarted");
      return;
    }
    absl::StatusOr<Revocations> revoked = Revocations::Parse(files.revoked, ReadCertificates(files.authorities));
    if (!revoked.ok()) return notice(true, absl::StrCat("--tls-dir: crl.pem: ", revoked.status().message()));
    notice(false, absl::StrFormat("--tls-dir: crl.pem: %d certificates are revoked", revoked->size()));
    if (revoked->next_update() < now) {
      notice(true, absl::StrCat("--tls-dir: crl.pem: a newer list was due on ",
                                absl::FormatTime("%Y-%m-%d", revoked->next_update(), absl::UTCTimeZone()),
                                "; this one stays in use"));
    }
    UseRevocations(std::make_shared<const Revocations>(*std::move(revoked)));
  }

  absl::Status Show(const TlsFiles& files) {
    CAIRN_RETURN_IF_ERROR(
        ShownFile::ReplaceAll({{authorities_.get(), &files.authorities}, {identity_.get(), &files.identity}}));
    OfThisProcess().expires = files.expires;
    Revoke(files, absl::Now(), notice_);
    return absl::OkStatus();
  }

  const std::unique_ptr<ShownFile> authorities_, identity_;
  const TlsNotice notice_;
};

}  // namespace

void LogTlsNotice(bool warning, const std::string& text) { warning ? LogWarning("%s", text) : LogInfo("%s", text); }

absl::Status UseTls(const std::string& directory, absl::Duration refresh, TlsNotice notice, TlsOwner owner) {
  using namespace grpc::experimental;  // NOLINT: in gRPC 1.51 reloading credentials are experimental
  if (directory.empty()) return absl::OkStatus();
  // The threads that gRPC and this class start block all signals: signals are for the program's own waiting threads.
  const AllSignalsBlocked blocked;
  CAIRN_ASSIGN_OR_RETURN(const TlsFiles files, ReadTlsFiles(directory, owner));
  absl::StatusOr<Caller> caller = CallerOfUris(files.uris);
  if (!caller.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--tls-dir: ", directory, "/tls.crt: ", caller.status().message()));
  }
  // Half of the time passes until the files are checked, the other half until gRPC reads the copies.
  const auto seconds = std::max<int64_t>(1, absl::ToInt64Seconds(refresh / 2));
  CAIRN_ASSIGN_OR_RETURN(const TlsWatch* watch,
                         TlsWatch::Start(directory, owner, absl::Seconds(seconds), std::move(notice)));
  const bool named = !files.identity.empty();
  const auto provider =
      std::make_shared<FileWatcherCertificateProvider>(named ? watch->identity() : "", named ? watch->identity() : "",
                                                       watch->authorities(), static_cast<unsigned>(seconds));
  TlsServerCredentialsOptions server(provider);
  server.watch_root_certs();
  server.watch_identity_key_cert_pairs();
  server.set_cert_request_type(TokensAreAccepted() ? GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY
                                                   : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  TlsChannelCredentialsOptions channel;
  channel.set_certificate_provider(provider);
  channel.watch_root_certs();
  if (named) channel.watch_identity_key_cert_pairs();
  Credentials& mine = OfThisProcess();
  mine.server = TlsServerCredentials(server);
  mine.channel = TlsCredentials(channel);
  mine.caller = *std::move(caller);
  mine.expires = files.expires;
  mine.tls = true;
  return absl::OkStatus();
}

void AllowInsecure() { OfThisProcess().insecure = true; }

absl::Status CheckListen(const std::string& address) {
  if (IsLoopbackAddress(address) || UsesTls() || OfThisProcess().insecure) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      address, " can be reached from other machines, and without TLS anyone there could use this cluster, ",
      "and what its jobs may read and write: give --tls-dir a folder with certificates (deploy/make_certs.sh makes ",
      "them), or --insecure if you trust that network"));
}

const Caller& OwnCaller() { return OfThisProcess().caller; }

absl::Time CertificateExpiry() { return OfThisProcess().expires; }

bool UsesTls() { return OfThisProcess().tls; }

std::string TlsHint(const std::string& error) {
  // In these cases no peer was reached, so TLS is not the cause.
  for (const char* nobody : {"refused", "unreachable", "No route to host", "Domain name not found", "DNS"}) {
    if (absl::StrContains(error, nobody)) return "";
  }
  if (UsesTls())
    return "; does it speak TLS, with a certificate that --tls-dir's ca.crt accepts and that has this name?";
  return "; does it speak TLS (--tls-dir)?";
}

std::shared_ptr<grpc::ServerCredentials> TcpServerCredentials() { return OfThisProcess().server; }
std::shared_ptr<grpc::ChannelCredentials> TcpChannelCredentials() { return OfThisProcess().channel; }

}  // namespace cairn
