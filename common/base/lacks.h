// Lacks: what a user gave is right, and Cairn has nothing for it, said in one sentence.
#pragma once

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace cairn {

// UNIMPLEMENTED with the pieces, end to end, as its message.
template <typename... Args>
absl::Status Lacks(const Args&... args) {
  return absl::UnimplementedError(absl::StrCat(args...));
}

}  // namespace cairn
