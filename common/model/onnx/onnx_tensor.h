// Constants of an ONNX file. Files are not trusted: sizes are checked before they are used, and data in external files
// is rejected. A caller that has these files inserts the data before (common/formats/onnx/onnx_external.h).
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
  bool whole = false;         // true: `ints` holds the numbers, not `floats`
  std::vector<float> floats;  // NumElements(dims)
  std::vector<int64_t> ints;
  bool of_batch = false;  // kOnnxBatch and kOnnxUnknown may occur in `ints`, and NaN in `floats` (onnx_fold.h)
};

// The batch size, and values computed from it.
inline constexpr int64_t kOnnxBatch = INT64_MIN + 7, kOnnxUnknown = INT64_MIN + 8;
inline bool IsOfBatch(int64_t number) { return number == kOnnxBatch || number == kOnnxUnknown; }

// Checks that the data matches the shape and type. Errors: INVALID_ARGUMENT begins with `tensor "x": `.
absl::Status CheckOnnxTensor(const onnx::TensorProto& tensor);

// The size of raw_data for its shape and type. Errors: as above.
absl::StatusOr<uint64_t> OnnxTensorBytes(const onnx::TensorProto& tensor);

// tensor: must be checked.
OnnxTensor ReadOnnxTensor(const onnx::TensorProto& tensor);

}  // namespace cairn
