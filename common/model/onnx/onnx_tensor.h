// Constants of an ONNX file. Nothing is believed: sizes are checked before they are used, and data that lie in other
// files are refused.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/status.h"
#include "common/tensor/buffer.h"
#include "onnx/onnx.pb.h"

namespace cairn {

struct OnnxTensor {
  Shape dims;
  bool whole = false;         // ints rather than floats
  std::vector<float> floats;  // NumElements(dims)
  std::vector<int64_t> ints;
};

// Whether the tensor is what it says. Errors: INVALID_ARGUMENT begins with `tensor "x": `.
absl::Status CheckOnnxTensor(const onnx::TensorProto& tensor);

// tensor: checked.
OnnxTensor ReadOnnxTensor(const onnx::TensorProto& tensor);

}  // namespace cairn
