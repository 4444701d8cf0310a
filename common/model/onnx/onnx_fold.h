// Constant folding: computes operators whose inputs are all constants. Exporters write such operators for shapes
// (Shape, Gather, Unsqueeze, Concat, Slice, Cast, arithmetic, ConstantOfShape, Reshape) and to assemble weights.
//
// The batch size is not known when a model is read. As an integer it is kOnnxBatch, and values computed from it are
// kOnnxUnknown; as a float both are NaN. They have this meaning only in a tensor with `of_batch`, which Shape creates.
//
// Pure functions. Invariant: at most kOnnxFoldedNumbersMax numbers are made; every axis of the file is checked.
#pragma once

#include <string>

#include "absl/types/span.h"
#include "common/base/status.h"
#include "common/model/onnx/onnx_tensor.h"

namespace cairn {

// inputs: nullptr for an omitted input. Errors: INVALID_ARGUMENT, UNIMPLEMENTED; without the node's name.
absl::StatusOr<OnnxTensor> FoldOnnxNode(const onnx::NodeProto& node, int64_t opset,
                                        absl::Span<const OnnxTensor* const> inputs);

// The part of a shape that `start` and `end` of a Shape operator (opset 15) select.
absl::StatusOr<OnnxTensor> OnnxShapeTensor(const onnx::NodeProto& node, const std::vector<int64_t>& dims);

}  // namespace cairn
