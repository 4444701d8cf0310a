// The operands of an Operation in the order of its formula: inputs of the layer, and constants in their place.
//
// A pure function; any thread.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "cairn/v1/tensor_layers.pb.h"
#include "common/tensor/buffer.h"

namespace cairn {

struct OperationOperand {
  int input = -1;                        // its number among the layer's inputs; -1: a constant
  absl::Span<const float> numbers = {};  // of a constant, of `shape`; they are the operation's, which must outlive them
  Shape shape = {};                      // of a constant, without the batch; [] is one number
};

// inputs: how many the layer has. The layer must be checked (common/model/layers/operation.cc).
std::vector<OperationOperand> OperandsOf(const v1::Operation& operation, size_t inputs);

}  // namespace cairn
