// Loads the weights of an ONNX model from files next to it (external data), which exporters write for large models.
//
// A free function, blocking; any thread. Invariants:
//   1. Only regular files below the model's folder are read: no absolute path, no "..", no symbolic link.
//   2. A tensor gets exactly the bytes that its shape needs, and the file must have them; all tensors together get at
//      most kOnnxExternalBytesMax, and no bytes of a file are used twice.
#pragma once

#include <string>

#include "common/base/status.h"
#include "onnx/onnx.pb.h"

namespace cairn {

// Loads the numbers of every initializer and Constant of the model into the message. Errors: INVALID_ARGUMENT begins
// with `tensor "x": `; system errors name the file.
absl::Status LoadOnnxExternalData(const std::string& folder, onnx::ModelProto* model);

}  // namespace cairn
