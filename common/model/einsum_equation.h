// The equation of an EinsumDense: "abc,cd->abd", or with axes that stay as they are in front, "...x,xy->...y".
//
// Pure functions; any thread.
#pragma once

#include <string>

#include "common/base/status.h"
#include "common/model/graph.h"

namespace cairn {

// Letters of the axes: of the input and of the output without the batch, of the kernel. "..." is made letters.
struct EinsumEquation {
  std::string x, kernel, y;
};

// rank: of the input, without the batch. Errors: INVALID_ARGUMENT, what is wrong with the equation: a letter stands
// twice in one operand, in one alone, or in the output and in no operand; the first letter of the input, the batch, is
// not the output's first, or is in the kernel.
absl::StatusOr<EinsumEquation> ParseEinsum(const std::string& equation, size_t rank);

}  // namespace cairn
