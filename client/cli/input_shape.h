// A shape as the command line has it: --input-shape 128,128,3; of one of several inputs, --input-shape left=128,128,3.
//
// Free functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/status.h"
#include "common/tensor/buffer.h"

namespace cairn {

// Empty: none is given. Errors: INVALID_ARGUMENT, `--input-shape: 0 is not a size; ...`.
absl::StatusOr<Shape> ParseInputShape(absl::string_view text);

struct InputShape {
  std::string input;  // empty: the model's only one
  Shape shape;
};

// One for each option. Errors: also, an input is named twice.
absl::StatusOr<std::vector<InputShape>> ParseInputShapes(const std::vector<std::string>& texts);

}  // namespace cairn
