// Which backend a worker computes with: the place where backends that are found at start (a GPU's) join those linked
// in.
#pragma once

#include <memory>
#include <string>

#include "common/base/status.h"
#include "worker/backend/backend.h"

namespace cairn {

// device: "auto" (the fastest that is there), "cpu", "gpu" or "gpu:N". Errors: INVALID_ARGUMENT, a device of another
// name; UNAVAILABLE, this build or machine has none such.
absl::StatusOr<std::unique_ptr<Backend>> SelectBackend(const std::string& device);

}  // namespace cairn
