// Reads and writes ONNX files. Their contents: onnx/onnx_export.h, onnx/onnx_import.h.
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

// `space`: the parameter space. The file is complete or absent (WriteFileWhole). Errors:
// UNIMPLEMENTED: the model is too large for the format; INTERNAL names the file.
absl::Status WriteOnnxFile(const std::string& path, const OnnxFileOptions& options, const Graph& graph,
                           absl::Span<const float> space);

struct OnnxFile {
  v1::Model model;
  SafetensorsFile weights;  // under the names that the model's graph gives them
};

// Reads the file and its external weights (onnx/onnx_external.h). Errors: those of ReadFileBytes;
// INVALID_ARGUMENT, UNIMPLEMENTED, DATA_LOSS begin with the file's name.
absl::StatusOr<OnnxFile> ReadOnnxFile(const std::string& path);

// Each operator that the output depends on; status: why it is refused, or OK. Errors: as above,
// for the file as a whole.
struct OnnxOperatorReport {
  std::string name, type;
  absl::Status status;
};
absl::StatusOr<std::vector<OnnxOperatorReport>> ReportOnnxOperators(const std::string& path);

}  // namespace cairn
