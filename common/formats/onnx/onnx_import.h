// Converts ONNX models to Cairn's: layers with Keras' semantics, channels last, and their variables.
//
//   A graph that Cairn wrote and that is unchanged is restored exactly, including dropout: its metadata hold the model,
//   and exporting that model gives the same graph. Any other graph is read operator by operator (onnx_importer.h).
//
// A model with input [batch, channels, height, width], such as PyTorch's, takes [height, width, channels], and so does
// an output that is an image. Pure functions. Invariants:
//   1. Nothing that changes what the model computes is ignored: an operator or attribute that Cairn does not support is
//      an error that names the node.
//   2. Files are not trusted.
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
