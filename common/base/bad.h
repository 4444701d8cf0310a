// Bad: an error for input from a user that cannot be used, described in one sentence.
#pragma once

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace cairn {

// INVALID_ARGUMENT; the message is the concatenation of the arguments.
template <typename... Args>
absl::Status Bad(const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat(args...));
}

}  // namespace cairn
