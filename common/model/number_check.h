// Checks one number of a job. `field`: its full name. `usual`: a value to suggest.
//
// Pure functions. Errors: INVALID_ARGUMENT.
#pragma once

#include <cmath>
#include <string>

#include "common/base/bad.h"

namespace cairn {

inline absl::Status CheckPositive(const std::string& field, float value, float usual) {
  if (value > 0 && std::isfinite(value)) return absl::OkStatus();
  return Bad(field, ": ", value, value > 0 ? " is not finite" : " is not positive", "; use a number such as ", usual);
}

inline absl::Status CheckNotNegative(const std::string& field, float value, float usual) {
  if (value >= 0 && std::isfinite(value)) return absl::OkStatus();
  return Bad(field, ": ", value, " is negative or not finite; use a number such as ", usual);
}

}  // namespace cairn
