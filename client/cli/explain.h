// What the fields of a job are: `cairn explain optimizer.adam`. The texts are the comments of the protos.
#pragma once

#include <string>

#include "common/base/status.h"

namespace cairn {

// Describes a field of a job by its path, as --set takes it ("optimizer.adam.beta_1", "layers[0]"; a leading "job." is
// left out), or a message or an enum by its name ("Conv2D"): its type, its comment, and the fields or values that it
// has. Empty or "job": the job itself. Lines are at most `width` columns long where words allow it. Errors:
// INVALID_ARGUMENT, which names the field that there is not and the nearest one.
absl::StatusOr<std::string> Explain(const std::string& path, size_t width);

}  // namespace cairn
