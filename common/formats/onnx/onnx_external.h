// Weights that lie in files beside an ONNX model (external data), as exporters write them of large models.
//
// A free function, blocking; any thread. Invariants:
//   1. Only regular files below the model's folder are read: no absolute path, no "..", no symbolic link.
//   2. A tensor gets the bytes that its shape needs, which the file has; all tensors together at most
//      kOnnxExternalBytesMax, and no file's bytes more than once.
#pragma once

#include <string>

#include "common/base/status.h"
#include "onnx/onnx.pb.h"

namespace cairn {

// Puts the numbers of every initializer and Constant of the model into the message. Errors: INVALID_ARGUMENT begins
// with `tensor "x": `; the system's name the file.
absl::Status LoadOnnxExternalData(const std::string& folder, onnx::ModelProto* model);

}  // namespace cairn
