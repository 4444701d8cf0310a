// Cases of LayerCases (layer_cases.h): numbers by place, noise, repeated rows, activations beyond the first twelve.
#pragma once

#include <string>
#include <vector>

#include "tests/unit/backend/feature_cases.h"
#include "tests/unit/backend/layer_case.h"

namespace cairn {

inline std::vector<LayerCase> AffineCases() {
  return {
      {"Normalization", Between("layers { normalization {} }")},
      {"NormalizationInverted", Between("layers { normalization { invert: true } }")},
      {"NormalizationOfAll", Along("layers { normalization { all: true } }")},
      {"NormalizationOfRows", Between("layers { normalization { axis: 1 } }")},
      {"NormalizationOfTwoAxes", Between("layers { normalization { axis: [3, 2] } }")},
      {"NormalizationGiven", Between("layers { normalization { mean: [0.5, -1, 2] variance: [0.25, 4, 1] } }")},
      {"NormalizationOfOne", Along("layers { normalization { mean: 0.5 variance: 0.25 } }")},
      {"NormalizationGivenInverted",
       Along("layers { normalization { mean: [0.5, -1, 2, 0] variance: [0.25, 4, 1, 0.5] invert: true } }")},
      {"NormalizationShared", Along("layers { name: 'n' normalization {} } layers { inputs: ['first', 'n'] add {} }")},
      {"NormalizationFlattened", Between("layers { flatten {} } layers { normalization {} }")},
      {"NormalizationOfInput",
       "layers { input { shape: [5, 6, 2] } } layers { normalization { mean: [0.1, 0.2] "
       "variance: [0.5, 2] } } layers { conv2d { filters: 3 kernel_size: 3 } } layers { "
       "flatten {} } layers { dense { units: 4 activation: SOFTMAX } }"},
      {"RescalingByChannel", Between("layers { rescaling { scales: [0.5, -2, 3] offsets: [1, 0, -1] } }")},
      {"RescalingOfInput",
       "layers { input { shape: [5, 6, 2] } } layers { rescaling { scales: [0.5, 2] } } layers { "
       "conv2d { filters: 3 kernel_size: 3 } } layers { flatten {} } layers { dense { units: 4 "
       "activation: SOFTMAX } }"},
  };
}

inline std::vector<LayerCase> NoiseCases() {
  return {
      {"DropoutSeed", Between("layers { dropout { rate: 0.4 seed: 1234567890123 } }")},
      {"DropoutNoiseShape", Between("layers { dropout { rate: 0.4 noise_shape: [1, -1, 3] } }")},
      {"DropoutOfExamples",
       Between("layers { flatten {} } layers { dense { units: 9 } } layers { dropout { rate: 0.4 noise_shape: 1 } }")},
      {"DropoutOfFlattened", Between("layers { flatten {} } layers { dropout { rate: 0.4 noise_shape: 1 seed: 3 } }")},
      {"SpatialDropout1D", Along("layers { spatial_dropout1d { rate: 0.4 } }")},
      {"SpatialDropout2DSeed", Between("layers { spatial_dropout2d { rate: 0.4 seed: 7 } }")},
      {"AlphaDropout", Between("layers { alpha_dropout { rate: 0.3 } }")},
      {"AlphaDropoutNoiseShape", Along("layers { alpha_dropout { rate: 0.3 noise_shape: [-1, 1] seed: 5 } }")},
      {"GaussianNoise", Between("layers { gaussian_noise { stddev: 0.5 } }")},
      {"GaussianNoiseShared",
       Along("layers { name: 'n' gaussian_noise { stddev: 0.5 seed: 9 } } layers { inputs: ['first', 'n'] add {} }")},
      {"GaussianDropout", Along("layers { gaussian_dropout { rate: 0.3 } }")},
      {"AttentionDropoutSeed",
       Along("layers { inputs: ['first', 'first'] multi_head_attention { num_heads: 2 key_dim: 3 dropout: 0.4 seed: 5 "
             "} }")},
      {"RepeatVector",
       "layers { input { shape: 5 } } layers { dense { units: 6 } } layers { repeat_vector { n: 3 } } "
       "layers { conv1d { filters: 2 kernel_size: 2 } } layers { flatten {} } layers { dense { units: "
       "3 activation: SOFTMAX } }"},
      {"RepeatVectorFlattened", Between("layers { flatten {} } layers { repeat_vector { n: 2 } }", "[3, 2, 2]")},
  };
}

inline std::vector<LayerCase> ActivationCases() {
  const std::string features = "layers { input { shape: 5 } } ";
  std::vector<LayerCase> cases = {
      {"ReluMax", Between("layers { activation { activation: RELU max_value: 0.3 } }")},
      {"ReluThreshold", Between("layers { activation { activation: RELU threshold: 0.2 } }")},
      {"NormReluMax", Between("layers { batch_normalization {} } layers { activation { activation: RELU max_value: 0.7 "
                              "} }")},
      {"Threshold", Between("layers { activation { activation: THRESHOLD threshold: -0.2 } }")},
      {"ShrinkThreshold", Between("layers { activation { activation: SOFT_SHRINK threshold: 0.1 } }")},
      {"CeluAlpha", Between("layers { activation { activation: CELU alpha: 0.4 } }")},
      {"HardSigmoidSlope", Between("layers { rescaling { scale: 4 } } layers { activation { activation: HARD_SIGMOID "
                                   "alpha: 0.2 } }")},
      {"SeluShared", Between("layers { name: 'a' activation { activation: SELU } } layers { inputs: ['first', 'a'] add "
                             "{} } layers { activation { activation: SELU } }")},
      {"SeluFlattened", Between("layers { flatten {} } layers { activation { activation: SELU } }")},
      {"LogSoftmaxLast",
       features + "layers { dense { units: 6 } } layers { dense { units: 3 activation: LOG_SOFTMAX } }",
       "kind: MEAN_SQUARED_ERROR"},
      {"Glu", Between("layers { conv2d { filters: 4 kernel_size: 1 } } layers { activation { activation: GLU } }")},
      {"GluFeatures", features + "layers { dense { units: 6 } } layers { activation { activation: GLU } } layers { "
                                 "dense { units: 3 activation: SOFTMAX } }"},
  };
  for (const char* f : {"SELU", "HARD_SIGMOID", "HARD_SILU", "EXPONENTIAL", "SOFTSIGN", "MISH", "LOG_SOFTMAX",
                        "LOG_SIGMOID", "CELU", "HARD_TANH", "TANH_SHRINK", "SOFT_SHRINK", "HARD_SHRINK", "SQUAREPLUS",
                        "SPARSE_PLUS", "SPARSE_SIGMOID", "SPARSEMAX", "HARD_SIGMOID_KERAS2"}) {
    const std::string activation = std::string(" activation: ") + f + " ";
    // Wide enough for all pieces of the function.
    cases.push_back({std::string("Layer_") + f,
                     Between("layers { rescaling { scale: 3 } } layers { activation {" + activation + "} }")});
    cases.push_back(
        {std::string("Conv2D_") + f, Between("layers { conv2d { filters: 4 kernel_size: 3" + activation + "} }")});
    cases.push_back({std::string("Dense_") + f, features + "layers { dense { units: 6" + activation +
                                                    "} } layers { dense { units: 3 activation: SOFTMAX } }"});
    cases.push_back(
        {std::string("Joined_") + f, Between("layers { conv2d { filters: 4 kernel_size: 3 } } layers { activation {" +
                                             activation + "} } layers { max_pooling2d { pool_size: 2 strides: 1 } }")});
  }
  return cases;
}

inline std::vector<LayerCase> RowCases() {
  const std::string features = "layers { input { shape: 5 } } ";
  return {
      {"LayerNormalizationOfTwoAxes", Between("layers { layer_normalization { axis: [2, 3] } }")},
      {"LayerNormalizationOfAll", Along("layers { layer_normalization { axis: [-2, -1] center: false } }")},
      {"RmsNormalization", Between("layers { rms_normalization {} }")},
      {"RmsNormalizationWide", features +
                                   "layers { dense { units: 37 } } layers { rms_normalization { epsilon: 0.1 } } "
                                   "layers { dense { units: 3 activation: SOFTMAX } }"},
      {"RmsNormalizationShared",
       Along("layers { name: 'n' rms_normalization {} } layers { inputs: ['first', 'n'] add {} }")},
      {"UnitNormalization", Between("layers { unit_normalization {} }")},
      {"UnitNormalizationOfAll", Along("layers { unit_normalization { axis: [1, 2] } }")},
      {"UnitNormalizationFlattened", Between("layers { flatten {} } layers { unit_normalization {} }")},
  };
}

inline std::vector<LayerCase> ScoreCases() {
  const std::string key =
      "layers { name: 'v' max_pooling1d {} } layers { name: 'k' inputs: 'v' conv1d { filters: 4 "
      "kernel_size: 1 } } layers { inputs: ['first', 'v', 'k'] ";
  return {
      {"DotAttention", Along("layers { inputs: ['first', 'first'] attention { use_scale: true } }")},
      {"DotAttentionPlain", Along(key + "attention {} }")},
      {"DotAttentionCausal",
       Along("layers { inputs: ['first', 'first'] attention { use_causal_mask: true dropout: 0.3 seed: 4 } }")},
      {"ConcatAttention", Along(key + "attention { score_mode: CONCAT use_scale: true } }")},
      {"ConcatAttentionCausal",
       Along("layers { inputs: ['first', 'first'] attention { score_mode: CONCAT use_causal_mask: true } }")},
      {"AdditiveAttention", Along(key + "additive_attention {} }")},
      {"AdditiveAttentionPlain", Along("layers { inputs: ['first', 'first'] additive_attention { use_scale: false "
                                       "dropout: 0.4 use_causal_mask: true } }")},
      {"GroupQueryAttention", Along("layers { inputs: ['first', 'first'] group_query_attention { head_dim: 3 "
                                    "num_query_heads: 4 num_key_value_heads: 2 } }")},
      {"GroupQueryAttentionGated",
       Along(key + "group_query_attention { head_dim: 2 num_query_heads: 6 num_key_value_heads: 3 use_gate: true "
                   "use_bias: false } }")},
      {"GroupQueryAttentionCausal",
       Along("layers { inputs: ['first', 'first'] group_query_attention { head_dim: 2 num_query_heads: 2 "
             "num_key_value_heads: 1 use_causal_mask: true sliding_window: 2 } }")},
      {"GroupQueryAttentionWindow",
       Along("layers { inputs: ['first', 'first'] group_query_attention { head_dim: 2 num_query_heads: 2 "
             "num_key_value_heads: 2 sliding_window: 3 use_gate: true bias_initializer { kind: RANDOM_NORMAL } } }")},
      {"MultiHeadAttentionWider",
       Along("layers { inputs: ['first', 'first'] multi_head_attention { num_heads: 2 key_dim: 3 output_shape: 5 } }")},
  };
}

inline std::vector<LayerCase> EinsumCases() {
  return {
      {"Einsum", Along("layers { einsum_dense { equation: 'abc,cd->abd' output_shape: [-1, 5] bias_axes: 'd' } }")},
      {"EinsumNoBias",
       Along("layers { einsum_dense { equation: 'abc,cd->abd' output_shape: [7, 3] activation: TANH } }")},
      {"EinsumToHeads",
       Along("layers { einsum_dense { equation: 'abc,cde->abde' output_shape: [-1, 2, 3] bias_axes: 'de' } }")},
      {"EinsumFromHeads", Between("layers { einsum_dense { equation: 'abcd,cde->abe' output_shape: [-1, 4] bias_axes: "
                                  "'e' activation: GELU } }")},
      {"EinsumTurned",
       Along("layers { einsum_dense { equation: 'abc,bd->adc' output_shape: [3, -1] bias_axes: 'd' } }")},
      {"EinsumShared",
       Along("layers { einsum_dense { equation: 'abc,bcd->abd' output_shape: [-1, 3] bias_axes: 'bd' } }")},
      {"EinsumElided", Between("layers { einsum_dense { equation: '...x,xy->...y' output_shape: 4 bias_axes: 'y' } }")},
      {"EinsumOfRow",
       "layers { input { shape: 5 } } layers { dense { units: 6 } } layers { einsum_dense { equation: "
       "'ab,bc->ac' output_shape: 3 activation: SOFTMAX } }"},
  };
}

inline std::vector<LayerCase> SpectralCases() {
  const auto spectral = [](const std::string& layer) {
    return "layers { spectral_normalization { layer { " + layer + " } power_iterations: 2 } }";
  };
  return {
      {"SpectralDense", Along(spectral("dense { units: 5 activation: TANH }"))},
      {"SpectralConvolution", Between(spectral("conv2d { filters: 4 kernel_size: 3 padding: SAME activation: RELU }"))},
      {"SpectralConvolutionGelu", Between(spectral("conv2d { filters: 2 kernel_size: 2 activation: GELU }"))},
      {"SpectralPadded", Between("layers { zero_padding2d { padding: 1 } } " +
                                 spectral("conv2d { filters: 2 kernel_size: 3 use_bias: false }") +
                                 " layers { activation { activation: RELU } }")},
      {"SpectralDepthwise", Between(spectral("depthwise_conv2d { kernel_size: 3 }"))},
      {"SpectralTransposed", Between(spectral("conv2d_transpose { filters: 3 kernel_size: 2 strides: 2 }"))},
      {"SpectralLast", "layers { input { shape: 5 } } layers { dense { units: 6 } } " +
                           spectral("dense { units: 3 activation: SOFTMAX }")},
  };
}

inline std::vector<LayerCase> FurtherCases() {
  std::vector<LayerCase> cases = AffineCases();
  for (const LayerCase& c : NoiseCases()) cases.push_back(c);
  for (const LayerCase& c : ActivationCases()) cases.push_back(c);
  for (const LayerCase& c : RowCases()) cases.push_back(c);
  for (const LayerCase& c : ScoreCases()) cases.push_back(c);
  for (const LayerCase& c : EinsumCases()) cases.push_back(c);
  for (const LayerCase& c : SpectralCases()) cases.push_back(c);
  return cases;
}

}  // namespace cairn
