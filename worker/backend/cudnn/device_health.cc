#include "worker/backend/cudnn/device_health.h"

#include "absl/strings/str_cat.h"

namespace cairn::cudnn {

absl::Status DeviceHealth::Note(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (lost_.ok() && (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status))) {
    lost_ = absl::UnavailableError(absl::StrCat(device_, " is lost: ", status.message()));
  }
  return status.ok() || lost_.ok() || absl::IsCancelled(status) ? status : lost_;
}

absl::Status DeviceHealth::status() const {
  absl::MutexLock lock(&mutex_);
  return lost_;
}

}  // namespace cairn::cudnn
