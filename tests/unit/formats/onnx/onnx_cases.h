// What the tests of ONNX share: models with values, and what the reference backend makes of them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "common/formats/onnx/onnx_import.h"
#include "tests/unit/backend/conv_lstm_cases.h"
#include "tests/unit/backend/layer_cases.h"
#include "tests/unit/backend/recurrent_cases.h"
#include "worker/backend/reference/reference_backend.h"

namespace cairn {

inline constexpr int64_t kOnnxExamples = 3;

// Models beside those of LayerCases: what they lack.
inline std::vector<LayerCase> MoreOnnxCases() {
  const std::string features = "layers { input { shape: 5 } } ";
  return {
      {"OnlyFlatten", "layers { input { shape: [3, 2, 2] } } layers { flatten {} }"},
      {"OnlyDropout", features + "layers { dropout { rate: 0.5 } }"},
      {"PictureOut",
       "layers { input { shape: [5, 4, 2] } } layers { conv2d { filters: 3 kernel_size: 2 activation: SOFTMAX } }"},
      {"SequenceOut",
       "layers { input { shape: [6, 2] } } layers { conv1d { filters: 3 kernel_size: 2 activation: GELU } }"},
      {"DropoutLast", features + "layers { dense { units: 3 } } layers { dropout { rate: 0.5 } }"},
      {"Relu6", features + "layers { dense { units: 9 } } layers { rescaling { scale: 20 } } layers { activation { "
                           "activation: RELU6 } }"},
      {"BatchNormalizationBeforeConvolution",
       "layers { input { shape: [5, 5, 2] } } layers { batch_normalization {} } layers { conv2d { filters: 2 "
       "kernel_size: 3 } } layers { flatten {} }"},
      {"FoldChain",
       "layers { input { shape: [6, 6, 2] } } layers { name: 'a' conv2d { filters: 4 kernel_size: 3 use_bias: false } "
       "} layers { batch_normalization {} } "
       "layers { activation { activation: RELU } } layers { name: 'b' depthwise_conv2d { kernel_size: 3 "
       "depth_multiplier: 2 padding: SAME } } "
       "layers { batch_normalization { scale: false } } layers { name: 'c' separable_conv2d { filters: 3 kernel_size: "
       "2 } } "
       "layers { batch_normalization { center: false } } layers { name: 'd' conv2d_transpose { filters: 5 kernel_size: "
       "3 strides: 2 use_bias: false } } "
       "layers { batch_normalization {} } layers { flatten {} } layers { name: 'e' dense { units: 4 } } layers { "
       "batch_normalization {} }"},
  };
}

inline std::vector<LayerCase> OnnxCases() {
  std::vector<LayerCase> cases;
  for (const LayerCase& c : LayerCases()) {  // a file of others has one input
    if (CaseGraph(c)->inputs().size() == 1) cases.push_back(c);
  }
  for (const LayerCase& c : RecurrentCases()) {
    // Activations that ONNX's recurrent operators do not have.
    const bool lacks = c.model.find("GELU") != std::string::npos || c.model.find("SILU") != std::string::npos;
    if (!lacks) cases.push_back(c);
  }
  for (const LayerCase& c : ConvLstmCases()) cases.push_back(c);
  for (const LayerCase& c : DistributedCases()) cases.push_back(c);
  for (const LayerCase& c : DistributedBatchCases()) cases.push_back(c);
  for (const LayerCase& c : MoreOnnxCases()) cases.push_back(c);
  return cases;
}

// Recurrent layers with activations that no recurrent operator of ONNX takes, layers and operations that it does not
// have, tensors of more axes than are written.
inline bool IsLackedByOnnx(const LayerCase& c) {
  for (const char* part :
       {"SPARSEMAX", "return_cell", "group_query_attention", "conv_lstm", "spectral_normalization"}) {
    if (c.model.find(part) != std::string::npos) return true;
  }
  for (const char* name : {"SimpleRnnSelu", "LstmFurther", "GruFurther", "BidirectionalFurther", "Operation_ARCTAN2",
                           "Operation_CUMPROD", "Operation_CUMPROD_First", "VolumesFlattened"}) {
    if (c.name == name) return true;
  }
  return absl::StartsWith(c.name, "DistributedVolumes");
}

inline std::vector<float> PredictWith(const std::shared_ptr<const Graph>& graph, const std::vector<float>& values,
                                      const Batch& batch) {
  ProgramOptions options;
  options.batch_max = batch.examples;
  options.loss.set_kind(v1::Loss::MEAN_SQUARED_ERROR);
  const auto program = MakeReferenceBackend()->Compile(graph, options);
  CAIRN_CHECK(program.ok(), program.status().ToString());
  const auto predictions = (*program)->Predict(batch, values);
  CAIRN_CHECK(predictions.ok(), predictions.status().ToString());
  return {predictions->floats().begin(), predictions->floats().end()};
}

// An imported model's graph and its parameter space.
struct ImportedGraph {
  explicit ImportedGraph(const ImportedOnnx& imported)
      : graph(std::make_shared<const Graph>(Graph::Build(imported.model).value())) {
    values.assign(static_cast<size_t>(graph->space_size()), 0.0f);
    for (const Variable& v : graph->variables()) {
      for (const OnnxVariable& from : imported.variables) {
        if (from.name == v.name) std::copy(from.values.begin(), from.values.end(), values.begin() + v.offset);
      }
    }
  }
  std::shared_ptr<const Graph> graph;
  std::vector<float> values;
};

}  // namespace cairn
