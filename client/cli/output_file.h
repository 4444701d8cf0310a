// CheckOutputFile: whether a command's `-o FILE` can name its output, asked before the work that makes it.
//
// Any thread.
#pragma once

#include <string>

#include "common/base/status.h"

namespace cairn {

// Errors: INVALID_ARGUMENT names -o.
absl::Status CheckOutputFile(const std::string& output);

}  // namespace cairn
