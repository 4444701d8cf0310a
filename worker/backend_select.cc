#include "worker/backend_select.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "worker/backend/onednn/onednn_backend.h"

namespace cairn {

absl::StatusOr<std::unique_ptr<Backend>> SelectBackend(const std::string& device) {
  if (device == "auto" || device == "cpu") return MakeOnednnBackend();
  if (device == "gpu" || absl::StartsWith(device, "gpu:")) {
    return absl::UnavailableError(
        absl::StrCat("--device=", device, ": no GPU backend in this build; use --device=cpu, or auto"));
  }
  return absl::InvalidArgumentError(absl::StrCat("--device=", device, ": use auto, cpu, gpu or gpu:N"));
}

}  // namespace cairn
