// Operators of constants alone, computed: what exporters write of shapes (Shape, Gather, Unsqueeze, Concat, Slice,
// Cast, arithmetic, ConstantOfShape, Reshape) and of weights that are put together.
//
// The batch's size is not known when a model is read. In whole numbers it is kOnnxBatch, what is computed of it
// kOnnxUnknown; in floats both are NaN. They mean so in a tensor with `of_batch` alone, which Shape makes.
//
// Pure functions. Invariant: no more than kOnnxFoldedNumbersMax numbers are made, and no axis is believed.
#pragma once

#include <string>

#include "absl/types/span.h"
#include "common/base/status.h"
#include "common/model/onnx/onnx_tensor.h"

namespace cairn {

// inputs: nullptr where one is left out. Errors: INVALID_ARGUMENT, UNIMPLEMENTED; without the node's name.
absl::StatusOr<OnnxTensor> FoldOnnxNode(const onnx::NodeProto& node, int64_t opset,
                                        absl::Span<const OnnxTensor* const> inputs);

// The part of a shape that `start` and `end` of a Shape operator (opset 15) leave.
absl::StatusOr<OnnxTensor> OnnxShapeTensor(const onnx::NodeProto& node, const std::vector<int64_t>& dims);

}  // namespace cairn
