// A model with its weights as ONNX (opset 13): what onnxruntime and other runtimes load.
//
// Input and output have Cairn's shapes (channels last) behind a dynamic batch and are called as their layers;
// initializers as their variables. Dropout is gone. The model's own description lies beside the graph as metadata
// "cairn.model" (a Model in protobuf text), which onnx_import.h holds against the graph.
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
  // Batch normalizations become part of the layer before them where that can be (fold_batch_norm.h): smaller and
  // faster where a runtime does not do it by itself, but no longer the model that was trained.
  bool fold_batch_norm = false;
};

// Errors: UNIMPLEMENTED a model of more than kOnnxBytesMax.
absl::StatusOr<onnx::ModelProto> ExportOnnx(const Graph& graph, absl::Span<const float> space,
                                            const OnnxExportOptions& options);

// The graph alone, its variables without numbers, and where they belong.
std::vector<OnnxPlace> OnnxSkeleton(const Graph& graph, onnx::GraphProto* out);

}  // namespace cairn
