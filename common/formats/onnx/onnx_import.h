// ONNX models as Cairn's: layers with Keras' meaning, channels last, and their variables.
//
//   A graph that Cairn wrote and nobody changed comes back as it was, dropout and all: its metadata hold the model, and
//   what that model would be written as is the graph. Any other graph is read operator by operator (onnx_importer.h).
//
// A model whose input is [batch, channels, height, width], as PyTorch's are, takes [height, width, channels]; where its
// output is a picture, that too. Pure functions. Invariants:
//   1. Nothing is ignored that changes what the model computes: an operator or attribute that Cairn does not have is an
//      error that names the node.
//   2. Nothing of a file is believed.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/status.h"
#include "common/model/onnx/onnx_variable.h"
#include "onnx/onnx.pb.h"

namespace cairn {

// Errors: INVALID_ARGUMENT, UNIMPLEMENTED, DATA_LOSS (not an ONNX file); the caller adds the file's name.
absl::StatusOr<ImportedOnnx> ParseOnnx(absl::string_view bytes);
absl::StatusOr<onnx::ModelProto> ParseOnnxMessage(absl::string_view bytes);
absl::StatusOr<ImportedOnnx> ImportOnnx(const onnx::ModelProto& model);

}  // namespace cairn
