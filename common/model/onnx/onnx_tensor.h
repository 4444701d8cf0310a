// Constants of an ONNX file. Nothing is believed: sizes are checked before they are used, and data that lie in other
// files are refused; whoever has the files puts the data in before (common/formats/onnx/onnx_external.h).
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
  bool of_batch = false;  // the two numbers below may be among `ints`, and NaN among `floats` (onnx_fold.h)
};

// The batch's size, and what is computed of it.
inline constexpr int64_t kOnnxBatch = INT64_MIN + 7, kOnnxUnknown = INT64_MIN + 8;
inline bool IsOfBatch(int64_t number) { return number == kOnnxBatch || number == kOnnxUnknown; }

// Whether the tensor is what it says. Errors: INVALID_ARGUMENT begins with `tensor "x": `.
absl::Status CheckOnnxTensor(const onnx::TensorProto& tensor);

// How many bytes raw_data of its shape and type has. Errors: as above.
absl::StatusOr<uint64_t> OnnxTensorBytes(const onnx::TensorProto& tensor);

// tensor: checked.
OnnxTensor ReadOnnxTensor(const onnx::TensorProto& tensor);

}  // namespace cairn
