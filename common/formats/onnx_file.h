// ONNX files. What is in them: onnx/onnx_export.h, onnx/onnx_import.h.
//
// Free functions, blocking; any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "cairn/v1/model.pb.h"
#include "common/base/status.h"
#include "common/formats/safetensors.h"
#include "common/model/graph.h"

namespace cairn {

struct OnnxFileOptions {
  std::string model_name;
  bool fold_batch_norm = false;  // onnx/onnx_export.h
};

// `space`: the parameter space. The file is complete or absent: written beside its place and renamed. Errors:
// UNIMPLEMENTED a model that is too large for the format; INTERNAL names the file.
absl::Status WriteOnnxFile(const std::string& path, const OnnxFileOptions& options, const Graph& graph,
                           absl::Span<const float> space);

struct OnnxFile {
  v1::Model model;
  SafetensorsFile weights;  // under the names that the model's graph gives them
};

// With the weights that lie in files beside it (onnx/onnx_external.h). Errors: those of ReadFileBytes;
// INVALID_ARGUMENT, UNIMPLEMENTED, DATA_LOSS begin with the file's name.
absl::StatusOr<OnnxFile> ReadOnnxFile(const std::string& path);

// Each operator of the file that its output depends on, with why it is refused, OK where it is not. Errors: as above,
// of the file as a whole.
struct OnnxOperatorReport {
  std::string name, type;
  absl::Status status;
};
absl::StatusOr<std::vector<OnnxOperatorReport>> ReportOnnxOperators(const std::string& path);

}  // namespace cairn
