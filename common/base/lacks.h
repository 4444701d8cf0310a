// Lacks: an error for valid input from a user that Cairn does not support, described in one sentence.
#pragma once

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace cairn {

// UNIMPLEMENTED; the message is the concatenation of the arguments.
template <typename... Args>
absl::Status Lacks(const Args&... args) {
  return absl::UnimplementedError(absl::StrCat(args...));
}

}  // namespace cairn
