// The third part of LayerCases (layer_cases.h): outputs of several positions, and losses other than cross-entropies and
// the mean squared error.
#pragma once

#include <string>
#include <vector>

#include "tests/unit/backend/layer_case.h"

namespace cairn {

inline std::vector<LayerCase> LossCases() {
  const auto pixels = [](const std::string& last) {
    return "layers { input { shape: [4, 5, 2] } } layers { conv2d { filters: 6 kernel_size: 3 padding: SAME "
           "activation: "
           "TANH } } layers { conv2d { " +
           last + " kernel_size: 1 } }";
  };
  const auto row = [](const std::string& last) {
    return "layers { input { shape: 5 } } layers { dense { units: 6 activation: TANH } } layers { dense { " + last +
           " } }";
  };
  return {
      {"PixelsSparse", pixels("filters: 3 activation: SOFTMAX")},
      {"PixelsSparseLogits", pixels("filters: 3"), "kind: SPARSE_CATEGORICAL_CROSSENTROPY from_logits: true"},
      {"PixelsCategorical", pixels("filters: 3 activation: SOFTMAX"), "kind: CATEGORICAL_CROSSENTROPY"},
      {"PixelsBinary", pixels("filters: 1 activation: SIGMOID"), "kind: BINARY_CROSSENTROPY"},
      {"PixelsMeanSquared", pixels("filters: 2"), "kind: MEAN_SQUARED_ERROR"},
      {"PixelsDice", pixels("filters: 1 activation: SIGMOID"), "kind: DICE axis: [1, 2, 3]"},
      {"PixelsTversky", pixels("filters: 2 activation: SOFTMAX"), "kind: TVERSKY axis: [1, 2, 3] alpha: 0.3"},
      {"PixelsCosine", pixels("filters: 3"), "kind: COSINE_SIMILARITY"},
      {"StepsSparse",
       "layers { input { shape: [7, 2] } } layers { conv1d { filters: 4 kernel_size: 3 activation: TANH } } layers { "
       "conv1d "
       "{ filters: 3 kernel_size: 1 activation: SOFTMAX } }"},
      {"Huber", row("units: 3"), "kind: HUBER delta: 0.4"},
      {"LogCosh", row("units: 3"), "kind: LOG_COSH"},
      {"KlDivergence", row("units: 3 activation: SOFTMAX"), "kind: KL_DIVERGENCE"},
      {"Poisson", row("units: 3 activation: SIGMOID"), "kind: POISSON"},
      {"BinaryFocal", row("units: 3 activation: SIGMOID"),
       "kind: BINARY_FOCAL_CROSSENTROPY apply_class_balancing: true"},
      {"CategoricalFocal", row("units: 4 activation: SOFTMAX"), "kind: CATEGORICAL_FOCAL_CROSSENTROPY"},
      {"CategoricalFocalLogits", row("units: 4"), "kind: CATEGORICAL_FOCAL_CROSSENTROPY from_logits: true"},
      {"Ctc",
       "layers { input { shape: [7, 2] } } layers { conv1d { filters: 4 kernel_size: 1 activation: TANH } } layers { "
       "conv1d { filters: 4 kernel_size: 1 } }",
       "kind: CTC"},
      {"Circle",
       "layers { input { shape: 5 } } layers { dense { units: 6 activation: TANH } } layers { dense { units: 4 } } "
       "layers { unit_normalization {} }",
       "kind: CIRCLE gamma: 4 margin: 0.3"},
      {"GeneralizedCrossEntropy", row("units: 4 activation: SOFTMAX"), "kind: CATEGORICAL_GENERALIZED_CROSS_ENTROPY"},
  };
}

}  // namespace cairn
