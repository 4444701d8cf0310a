// Small models that between them use every layer, every option of a layer and every loss; for gradient checks and for
// comparing one backend with another. In each, a layer with parameters stands before the one of interest, so that the
// gradient with regard to its input is checked too.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "common/model/graph.h"
#include "common/model/model_inputs.h"
#include "tests/unit/backend/activity_cases.h"
#include "tests/unit/backend/category_cases.h"
#include "tests/unit/backend/feature_cases.h"
#include "tests/unit/backend/further_cases.h"
#include "tests/unit/backend/graph_cases.h"
#include "tests/unit/backend/layer_case.h"
#include "tests/unit/backend/loss_cases.h"
#include "tests/unit/backend/window_cases.h"
#include "tests/unit/model/model_text.h"
#include "worker/backend/backend.h"

namespace cairn {

inline std::vector<LayerCase> LayerCases() {
  const std::string features = "layers { input { shape: 5 } } ";
  const std::string skip =
      "layers { name: 'a' inputs: 'first' conv2d { filters: 3 kernel_size: 3 padding: SAME activation: TANH } } ";
  std::vector<LayerCase> cases = {
      {"Conv2DValid", Between("layers { conv2d { filters: 4 kernel_size: 3 } }")},
      {"Conv2DSame", Between("layers { conv2d { filters: 4 kernel_size: [3, 2] padding: SAME } }")},
      {"Conv2DStrides", Between("layers { conv2d { filters: 4 kernel_size: 3 strides: [2, 1] padding: SAME } }")},
      {"Conv2DStridesOddPad",
       Between("layers { conv2d { filters: 2 kernel_size: 3 strides: 2 padding: SAME } }", "[6, 8, 1]")},
      {"Conv2DDilation", Between("layers { conv2d { filters: 4 kernel_size: 2 dilation_rate: [2, 3] } }")},
      {"Conv2DDilationSame", Between("layers { conv2d { filters: 4 kernel_size: 3 dilation_rate: 2 padding: SAME } }")},
      {"Conv2DNoBias", Between("layers { conv2d { filters: 4 kernel_size: 3 use_bias: false } }")},
      {"Conv2DRelu", Between("layers { conv2d { filters: 4 kernel_size: 3 activation: RELU } }")},
      {"Conv2DLeakyRelu", Between("layers { conv2d { filters: 4 kernel_size: 3 activation: LEAKY_RELU } }")},
      {"Conv2DSigmoid", Between("layers { conv2d { filters: 4 kernel_size: 3 activation: SIGMOID } }")},
      {"Conv2DSoftmax", Between("layers { conv2d { filters: 4 kernel_size: 3 activation: SOFTMAX } }")},
      {"Depthwise", Between("layers { depthwise_conv2d { kernel_size: 3 activation: TANH } }")},
      {"DepthwiseMultiplier",
       Between("layers { depthwise_conv2d { kernel_size: [3, 2] depth_multiplier: 2 strides: 2 padding: SAME } }")},
      {"DepthwiseFive", Between("layers { depthwise_conv2d { kernel_size: 5 padding: SAME activation: TANH } }")},
      {"DepthwiseFiveStrides",
       Between("layers { depthwise_conv2d { kernel_size: 5 strides: 2 padding: SAME use_bias: false } }")},
      {"DepthwiseSeven", Between("layers { depthwise_conv2d { kernel_size: 7 padding: SAME } }")},
      {"DepthwiseFivePadded", Between("layers { zero_padding2d { padding: [1, 2, 3, 1] } } layers { depthwise_conv2d { "
                                      "kernel_size: 5 strides: 2 } }")},
      {"DepthwiseDilation", Between("layers { depthwise_conv2d { kernel_size: 2 dilation_rate: 2 use_bias: false } }")},
      {"BatchNormalization", Between("layers { batch_normalization {} }")},
      {"BatchNormalizationPlain",
       Between("layers { batch_normalization { center: false scale: false epsilon: 0.1 } }")},
      {"BatchNormalizationScaleOnly", Between("layers { batch_normalization { center: false } }")},
      {"BatchNormalizationRelu",
       Between("layers { batch_normalization {} } layers { activation { activation: RELU } }")},
      {"BatchNormalizationFeatures", features + "layers { dense { units: 6 } } layers { batch_normalization {} } "
                                                "layers { activation { activation: TANH } } "
                                                "layers { dense { units: 3 activation: SOFTMAX } }"},
      {"Relu", Between("layers { activation { activation: RELU } }")},
      {"LeakyRelu", Between("layers { activation { activation: LEAKY_RELU negative_slope: 0.1 } }")},
      {"Sigmoid", Between("layers { activation { activation: SIGMOID } }")},
      {"Tanh", Between("layers { activation { activation: TANH } }")},
      {"Softmax", Between("layers { activation { activation: SOFTMAX } }")},
      {"MaxPooling", Between("layers { max_pooling2d {} }")},
      {"MaxPoolingSame", Between("layers { max_pooling2d { pool_size: [2, 3] padding: SAME } }")},
      {"MaxPoolingOverlap", Between("layers { max_pooling2d { pool_size: 3 strides: 1 } }")},
      {"AveragePooling", Between("layers { average_pooling2d { pool_size: [2, 3] } }")},
      {"AveragePoolingSame",
       Between("layers { average_pooling2d { pool_size: 3 strides: 2 padding: SAME } }", "[6, 6, 2]")},
      {"GlobalAveragePooling", Between("layers { global_average_pooling2d {} }")},
      {"ZeroPadding",
       Between("layers { zero_padding2d { padding: [0, 1, 2, 3] } } layers { conv2d { filters: 2 kernel_size: 3 } }")},
      {"Rescaling",
       Between("layers { rescaling { scale: -0.7 offset: 0.3 } } layers { activation { activation: TANH } }")},
      {"Dropout", Between("layers { dropout { rate: 0.4 } }")},
      {"DropoutAfterInput",
       features + "layers { dropout { rate: 0.25 } } layers { dense { units: 3 activation: SOFTMAX } }"},
      {"DenseOnPictures", Between("layers { dense { units: 5 activation: TANH } }")},
      {"DenseNoBias", features + "layers { dense { units: 4 use_bias: false activation: RELU } } layers { dense { "
                                 "units: 3 activation: SOFTMAX } }"},
      {"Add", Between(skip + "layers { inputs: ['first', 'a'] add {} }")},
      {"AddTwice",
       Between(skip + "layers { inputs: ['a', 'a', 'first'] add {} } layers { activation { activation: TANH } }")},
      {"Concatenate", Between(skip + "layers { inputs: ['a', 'first', 'a'] concatenate {} }")},
      {"ConcatenateFeatures", features + "layers { name: 'a' dense { units: 2 activation: TANH } } "
                                         "layers { name: 'b' inputs: 'input_layer' dense { units: 3 } } "
                                         "layers { inputs: ['a', 'b', 'input_layer'] concatenate {} } "
                                         "layers { dense { units: 3 activation: SOFTMAX } }"},
      {"Residual",
       Between(skip +
               "layers { batch_normalization {} } layers { name: 'b' conv2d { filters: 3 kernel_size: 1 } } "
               "layers { name: 'sum' inputs: ['b', 'first'] add {} } layers { activation { activation: RELU } } "
               "layers { name: 'c' max_pooling2d {} } layers { name: 'd' inputs: 'activation' average_pooling2d {} } "
               "layers { inputs: ['c', 'd'] concatenate {} }")},
      {"PoolingBranches",
       Between("layers { name: 'p' max_pooling2d {} } layers { name: 'q' inputs: 'first' conv2d { filters: 2 "
               "kernel_size: 2 strides: 2 padding: SAME } } layers { name: 'r' inputs: 'q' "
               "activation { activation: RELU } } layers { inputs: ['p', 'r'] concatenate {} }",
               "[6, 6, 2]")},
      {"SmallCnn",
       "layers { input { shape: [12, 12, 1] } } layers { rescaling { scale: 0.5 } } "
       "layers { conv2d { filters: 4 kernel_size: 3 activation: RELU padding: SAME } } layers { max_pooling2d {} } "
       "layers { conv2d { filters: 6 kernel_size: 3 activation: RELU } } layers { max_pooling2d {} } "
       "layers { flatten {} } layers { dropout { rate: 0.5 } } layers { dense { units: 5 activation: SOFTMAX } }"},
      {"SparseLogits", features + "layers { dense { units: 4 } }",
       "kind: SPARSE_CATEGORICAL_CROSSENTROPY from_logits: true"},
      {"SparseUnfused", features + "layers { dense { units: 4 activation: SIGMOID } }"},
      {"SparseSoftmaxThenFlatten",
       features + "layers { dense { units: 4 activation: SOFTMAX } } layers { flatten {} }"},
      {"SparseActivationLayer",
       features + "layers { dense { units: 4 } } layers { activation { activation: SOFTMAX } }"},
      {"CategoricalFused", features + "layers { dense { units: 4 activation: SOFTMAX } }",
       "kind: CATEGORICAL_CROSSENTROPY"},
      {"CategoricalLogits", features + "layers { dense { units: 4 } }",
       "kind: CATEGORICAL_CROSSENTROPY from_logits: true"},
      {"CategoricalUnfused", features + "layers { dense { units: 4 activation: SIGMOID } }",
       "kind: CATEGORICAL_CROSSENTROPY"},
      {"BinaryFused", features + "layers { dense { units: 3 activation: SIGMOID } }", "kind: BINARY_CROSSENTROPY"},
      {"BinaryLogits", features + "layers { dense { units: 3 } }", "kind: BINARY_CROSSENTROPY from_logits: true"},
      {"BinaryUnfused", features + "layers { dense { units: 3 activation: SOFTMAX } }", "kind: BINARY_CROSSENTROPY"},
      {"MeanSquared", features + "layers { dense { units: 3 } }", "kind: MEAN_SQUARED_ERROR"},
      {"MeanSquaredRelu", features + "layers { dense { units: 6 activation: LEAKY_RELU } }",
       "kind: MEAN_SQUARED_ERROR"},
  };
  for (const LayerCase& c : FeatureCases()) cases.push_back(c);
  for (const LayerCase& c : GraphCases()) cases.push_back(c);
  for (const LayerCase& c : ActivityCases()) cases.push_back(c);
  for (const LayerCase& c : CategoryCases()) cases.push_back(c);
  for (const LayerCase& c : FurtherCases()) cases.push_back(c);
  for (const LayerCase& c : LossCases()) cases.push_back(c);
  for (const LayerCase& c : WindowLayerCases()) cases.push_back(c);
  return cases;
}

inline float CaseUniform(uint32_t stream, uint32_t index) {
  return ToUniform(Philox({stream, 99}, {index, 0, 0, 0})[0]);
}

// Values of [-0.7, 0.7); moving variances of [0.5, 1.5).
inline std::vector<float> CaseValues(const Graph& graph, uint32_t seed) {
  std::vector<float> values(graph.space_size(), 0.0f);
  for (const Variable& v : graph.variables()) {
    const bool variance = v.name.ends_with("variance");
    for (int64_t i = v.offset; i < v.offset + v.size; ++i) {
      const float u = CaseUniform(seed, static_cast<uint32_t>(i));
      values[i] = variance ? 0.5f + u : 1.4f * u - 0.7f;
    }
  }
  return values;
}

// Inputs of [-1, 1), or ids where an embedding takes them; labels that fit the loss: class numbers, distributions, or
// numbers of [0, 1).
inline Batch CaseBatch(const Graph& graph, const v1::Loss& loss, int64_t examples, uint32_t seed) {
  const int64_t inputs = ModelInputSize(graph), outputs = NumElements(graph.output().output);
  Batch batch;
  batch.examples = examples;
  const int64_t classes = graph.output().output.back();
  const bool sparse = loss.kind() == v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY;
  batch.label_size = sparse ? outputs / classes : outputs;
  if (loss.kind() == v1::Loss::CIRCLE) batch.label_size = 1;
  if (loss.kind() == v1::Loss::CTC) batch.label_size = 3;
  batch.inputs = Buffer::Allocate(examples * inputs * sizeof(float));
  batch.labels = Buffer::Allocate(examples * batch.label_size * sizeof(float));
  uint32_t index = 0;
  const Node& second = graph.nodes()[1];
  const float ids = second.kind == LayerKind::kEmbedding ? static_cast<float>(second.layer.embedding().input_dim()) : 0;
  for (float& x : batch.inputs.mutable_floats()) {
    const float u = CaseUniform(seed + 1, index++);
    x = ids > 0 ? std::floor(u * ids) : 2 * u - 1;
  }
  const absl::Span<float> labels = batch.labels.mutable_floats();
  for (float& t : labels) t = CaseUniform(seed + 1, index++);
  if (sparse) {
    for (float& t : labels) t = std::floor(t * static_cast<float>(classes));
  } else if (loss.kind() == v1::Loss::CIRCLE) {
    for (float& t : labels) t = std::floor(t * 2);
  } else if (loss.kind() == v1::Loss::CTC) {  // one to three labels
    for (size_t i = 0; i < labels.size(); ++i) {
      labels[i] = i % 3 > i / 3 % 3 ? 0 : 1 + std::floor(labels[i] * static_cast<float>(classes - 1));
    }
  } else if (loss.kind() == v1::Loss::CATEGORICAL_CROSSENTROPY) {
    for (int64_t row = 0; row < examples * outputs / classes; ++row) {
      float sum = 0;
      for (int64_t i = 0; i < classes; ++i) sum += labels[row * classes + i];
      for (int64_t i = 0; i < classes; ++i) labels[row * classes + i] /= sum;
    }
  }
  return batch;
}

inline std::shared_ptr<const Graph> CaseGraph(const LayerCase& c) {
  return std::make_shared<const Graph>(Graph::Build(FromText<v1::Model>(c.model)).value());
}

// Whole numbers 0 .. 255: ids stay what they are.
inline Batch WholeNumbers(Batch batch) {
  batch.inputs = Buffer::CopyOf(batch.inputs.data(), batch.inputs.size());
  for (float& x : batch.inputs.mutable_floats()) {
    if (x < 0 || x != std::floor(x)) x = std::floor(std::min(std::abs(x) * 40, 255.0f));
  }
  return batch;
}

// The same whole numbers, as bytes.
inline Batch AsBytes(const Batch& batch) {
  Batch bytes = batch;
  bytes.element = Element::kByte;
  bytes.inputs = Buffer::Allocate(static_cast<size_t>(batch.input_numbers()));
  for (int64_t i = 0; i < batch.input_numbers(); ++i)
    bytes.inputs.mutable_data()[i] = static_cast<uint8_t>(batch.inputs.floats()[i]);
  return bytes;
}

}  // namespace cairn
