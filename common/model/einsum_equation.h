// The equation of an EinsumDense: "abc,cd->abd", or with unchanged leading axes, "...x,xy->...y".
//
// Pure functions; any thread.
#pragma once

#include <string>

#include "common/base/status.h"
#include "common/model/graph.h"

namespace cairn {

// The letters of the axes: x and y of the input and the output without the batch axis. "..." is replaced by letters.
struct EinsumEquation {
  std::string x, kernel, y;
};

// rank: that of the input, without the batch axis. Errors: INVALID_ARGUMENT says what is wrong with the equation: a
// letter occurs twice in one operand, in only one operand, or in the output but in no operand; or the first letter of
// the input (the batch axis) is not the first of the output, or occurs in the kernel.
absl::StatusOr<EinsumEquation> ParseEinsum(const std::string& equation, size_t rank);

}  // namespace cairn
