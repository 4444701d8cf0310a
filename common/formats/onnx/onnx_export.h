// Exports a model with its weights as ONNX (opset 13), for onnxruntime and other runtimes.
//
// Input and output have Cairn's shapes (channels last) after a dynamic batch and the names of their layers;
// initializers have the names of their variables. Dropout is removed. The model's description is stored with the graph
// as metadata "cairn.model" (a Model in protobuf text), which onnx_import.h compares with the graph.
//
// Pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/base/status.h"
#include "common/formats/limits.h"
#include "common/model/graph.h"
#include "common/model/onnx/onnx_writer.h"
#include "onnx/onnx.pb.h"

namespace cairn {

inline constexpr char kOnnxModelKey[] = "cairn.model";
inline constexpr int64_t kOnnxOpset = 13;

struct OnnxExportOptions {
  std::string model_name;
  // Fold batch normalizations into the layers before them where possible (fold_batch_norm.h): smaller and faster with
  // a runtime that does not do it by itself, but no longer the model that was trained.
  bool fold_batch_norm = false;
};

// Errors: UNIMPLEMENTED: the model is larger than kOnnxBytesMax.
absl::StatusOr<onnx::ModelProto> ExportOnnx(const Graph& graph, absl::Span<const float> space,
                                            const OnnxExportOptions& options);

// Writes only the graph, with variables without numbers, and returns where the numbers belong.
std::vector<OnnxPlace> OnnxSkeleton(const Graph& graph, onnx::GraphProto* out);

}  // namespace cairn
