// Checks of numbers that have a default other than 0 and must be positive if set: bad values are rejected, not taken
// for "unset". Any thread.
#pragma once

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace cairn {

// otherwise: the default that applies if the field is unset, such as "32". Errors: INVALID_ARGUMENT.
template <typename Number>
absl::Status AtLeastOne(absl::string_view field, bool given, Number value, absl::string_view otherwise) {
  if (!given || value >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": ", value, " is not allowed; leave it out for ", otherwise, ", or give at least 1"));
}

}  // namespace cairn
