// A shape as the command line has it: --input-shape 128,128,3.
//
// A free function; any thread.
#pragma once

#include "absl/strings/string_view.h"
#include "common/base/status.h"
#include "common/tensor/buffer.h"

namespace cairn {

// Empty: none is given. Errors: INVALID_ARGUMENT, `--input-shape: 0 is not a size; ...`.
absl::StatusOr<Shape> ParseInputShape(absl::string_view text);

}  // namespace cairn
