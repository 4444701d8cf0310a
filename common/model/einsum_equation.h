// The equation of an EinsumDense: "abc,cd->abd", or with unchanged leading axes, "...x,xy->...y"; and that of an Einsum
// of two tensors of examples: "abc,acd->abd".
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

// x, y: the two inputs' shapes without the batch, of which `kernel` is the second one's. Errors: also, the first letter
// is not the same in all three, or a letter's sizes differ. output: the shape of the result.
absl::StatusOr<EinsumEquation> ParseEinsumOfTwo(const std::string& equation, const Shape& x, const Shape& kernel,
                                                Shape* output);

}  // namespace cairn
