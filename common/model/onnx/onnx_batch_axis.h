// On which axis of an ONNX value the batch is, where that is not the first one: PyTorch's recurrent layers take and
// give [steps, batch, features] unless they are told otherwise.
//
// Pure functions.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "common/model/onnx/onnx_graph.h"
#include "common/model/onnx/onnx_view.h"

namespace cairn {

// The axis of the batch of an input of the graph: 1 if a recurrent operator reads the input, or if the graph has such
// an operator and only this axis of the input has no fixed size; otherwise 0.
int BatchAxisOfInput(const OnnxGraph& graph, const onnx::ValueInfoProto& input);

struct OnnxOperand {
  int input = 0;                   // of the operator
  const OnnxView* view = nullptr;  // null: a constant
  Shape dims;                      // of a constant
};

// The axis of the batch in all values that the operator reads, if it computes the same with the batch put first: if it
// goes number by number, or along axes behind the batch alone. Its output then has the batch there as well. 0: any
// other operator.
int OnnxBatchAxis(const onnx::NodeProto& node, absl::Span<const OnnxOperand> operands);

}  // namespace cairn
