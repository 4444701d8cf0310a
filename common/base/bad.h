// Bad: what a user gave cannot be used, said in one sentence.
#pragma once

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace cairn {

// INVALID_ARGUMENT with the pieces, end to end, as its message.
template <typename... Args>
absl::Status Bad(const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat(args...));
}

}  // namespace cairn
