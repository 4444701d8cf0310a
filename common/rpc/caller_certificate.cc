#include "common/rpc/caller_certificate.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"

namespace cairn {
namespace {

// Never destroyed: gRPC's threads may use it until the process ends.
struct Process {
  absl::Mutex mutex;
  std::shared_ptr<const Revocations> revocations ABSL_GUARDED_BY(mutex);
  std::atomic<uint64_t> number{1};  // grows with each UseRevocations
};
Process& OfThisProcess() {
  static Process& process = *new Process;
  return process;
}

std::shared_ptr<const Revocations> Current() {
  Process& process = OfThisProcess();
  const absl::MutexLock lock(&process.mutex);
  return process.revocations;
}

}  // namespace

void UseRevocations(std::shared_ptr<const Revocations> revocations) {
  Process& process = OfThisProcess();
  const absl::MutexLock lock(&process.mutex);
  process.revocations = std::move(revocations);
  ++process.number;
}

bool HasRevocations() { return Current() != nullptr; }

absl::Status CheckCertificate(X509* certificate, absl::Time now) {
  if (const absl::Time expires = ExpiryOf(certificate); now >= expires) {
    return absl::UnauthenticatedError(absl::StrCat(
        "your certificate expired on ", absl::FormatTime("%Y-%m-%d at %H:%M UTC", expires, absl::UTCTimeZone()),
        ": renew tls.crt in --tls-dir"));
  }
  const std::shared_ptr<const Revocations> revocations = Current();
  if (revocations == nullptr || !revocations->Has(certificate)) return absl::OkStatus();
  return absl::UnauthenticatedError(
      "your certificate was revoked: its serial number is in the crl.pem of the daemon's --tls-dir");
}

CallerCertificate::CallerCertificate(const grpc::AuthContext* context) {
  if (context == nullptr) return;
  const std::vector<grpc::string_ref> shown = context->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  if (shown.empty()) return;
  std::vector<Certificate> read = ReadCertificates(std::string(shown[0].data(), shown[0].size()));
  if (read.empty()) {
    expires_ = absl::InfinitePast();
    return;
  }
  certificate_ = std::move(read[0]);
  expires_ = ExpiryOf(certificate_.get());
}

CallerCertificate::CallerCertificate(const grpc::ServerContextBase& context)
    : CallerCertificate(context.auth_context().get()) {}

absl::Status CallerCertificate::Check(absl::Time now) {
  if (expires_ == absl::InfinitePast()) return absl::UnauthenticatedError("your certificate cannot be read");
  if (certificate_ == nullptr) return absl::OkStatus();
  const uint64_t number = OfThisProcess().number;
  if (number == checked_ && now < expires_) return absl::OkStatus();
  absl::Status status = CheckCertificate(certificate_.get(), now);
  if (status.ok()) checked_ = number;
  return status;
}

}  // namespace cairn
