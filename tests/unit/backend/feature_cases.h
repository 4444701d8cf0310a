// The second part of LayerCases (layer_cases.h): sequences, attention, normalizations of an example, up-sampling,
// joins, further activations.
#pragma once

#include <string>
#include <vector>

#include "tests/unit/backend/layer_case.h"

namespace cairn {

// Layers between a convolution along a sequence and a dense layer with softmax.
inline std::string Along(const std::string& layers, const std::string& shape = "[7, 2]") {
  return "layers { input { shape: " + shape + " } } layers { name: 'first' conv1d { filters: 4 kernel_size: 1 } } " +
         layers + " layers { flatten {} } layers { name: 'last' dense { units: 4 activation: SOFTMAX } }";
}

inline std::vector<LayerCase> FeatureCases() {
  const std::string features = "layers { input { shape: 5 } } ";
  const std::string end = " layers { flatten {} } layers { dense { units: 4 activation: SOFTMAX } }";
  const std::string branch =
      "layers { name: 'a' inputs: 'first' conv2d { filters: 3 kernel_size: 3 padding: SAME activation: TANH } } ";
  const std::string gate =
      "layers { name: 'pool' global_average_pooling2d {} } layers { name: 'gate' dense { units: 3 activation: SIGMOID "
      "} } ";
  std::vector<LayerCase> cases = {
      {"LayerNormalization", Between("layers { layer_normalization {} }")},
      {"LayerNormalizationPlain", Between("layers { layer_normalization { center: false scale: false } }")},
      {"LayerNormalizationCenterOnly", Along("layers { layer_normalization { scale: false epsilon: 0.1 } }")},
      {"LayerNormalizationFeatures", features + "layers { dense { units: 6 } } layers { layer_normalization {} } "
                                                "layers { dense { units: 3 activation: SOFTMAX } }"},
      {"LayerNormalizationFlattened", Between("layers { flatten {} } layers { layer_normalization {} }")},
      {"GroupNormalization",
       Between("layers { conv2d { filters: 6 kernel_size: 1 } } layers { group_normalization { groups: 3 } }")},
      {"GroupNormalizationPlain", Between("layers { group_normalization { groups: 1 center: false scale: false } }")},
      {"GroupNormalizationEach", Along("layers { group_normalization { groups: -1 center: false } }")},
      {"GroupNormalizationFeatures", features +
                                         "layers { dense { units: 6 } } layers { group_normalization { groups: 2 } } "
                                         "layers { dense { units: 3 activation: SOFTMAX } }"},
      {"Embedding", "layers { input { shape: 6 } } layers { embedding { input_dim: 5 output_dim: 3 } }" + end},
      {"EmbeddingPooled",
       "layers { input { shape: 6 } } layers { embedding { input_dim: 9 output_dim: 4 } } "
       "layers { global_average_pooling1d {} } layers { dense { units: 3 activation: SOFTMAX } }"},
      {"EmbeddingOfRows",
       "layers { input { shape: [2, 3] } } layers { embedding { input_dim: 5 output_dim: 3 } }" + end},
      {"GlobalAveragePooling1D", Along("layers { global_average_pooling1d {} }")},
      {"MaxPooling1D", Along("layers { max_pooling1d {} }")},
      {"MaxPooling1DSame", Along("layers { max_pooling1d { pool_size: 3 strides: 2 padding: SAME } }", "[6, 2]")},
      {"AveragePooling1D", Along("layers { average_pooling1d { pool_size: 3 strides: 1 } }")},
      {"AveragePooling1DSame", Along("layers { average_pooling1d { pool_size: 4 padding: SAME } }")},
      {"Conv1D", Along("layers { conv1d { filters: 3 kernel_size: 3 } }")},
      {"Conv1DSameStrides",
       Along("layers { conv1d { filters: 3 kernel_size: 4 strides: 2 padding: SAME activation: TANH } }")},
      {"Conv1DDilation", Along("layers { conv1d { filters: 3 kernel_size: 2 dilation_rate: 3 use_bias: false } }")},
      {"Separable", Between("layers { separable_conv2d { filters: 4 kernel_size: 3 } }")},
      {"SeparableMultiplier",
       Between("layers { separable_conv2d { filters: 4 kernel_size: [3, 2] depth_multiplier: 2 strides: 2 "
               "padding: SAME activation: TANH } }")},
      {"SeparableDilation",
       Between("layers { separable_conv2d { filters: 4 kernel_size: 2 dilation_rate: 2 use_bias: false } }")},
      {"Transpose", Between("layers { conv2d_transpose { filters: 4 kernel_size: 3 } }", "[3, 4, 2]")},
      {"TransposeSame",
       Between("layers { conv2d_transpose { filters: 2 kernel_size: 3 strides: 2 padding: SAME activation: TANH } }",
               "[3, 4, 2]")},
      {"TransposeStrides",
       Between("layers { conv2d_transpose { filters: 2 kernel_size: [2, 3] strides: [3, 2] use_bias: false } }",
               "[3, 2, 2]")},
      {"TransposeStridesSame",
       Between("layers { conv2d_transpose { filters: 2 kernel_size: [2, 5] strides: [3, 2] padding: SAME } }",
               "[3, 2, 2]")},
      {"UpSamplingNearest", Between("layers { up_sampling2d { size: [2, 3] } }", "[3, 2, 2]")},
      {"UpSamplingBilinear", Between("layers { up_sampling2d { interpolation: BILINEAR } }", "[3, 2, 2]")},
      {"UpSamplingBilinearOdd",
       Between("layers { up_sampling2d { size: [3, 1] interpolation: BILINEAR } }", "[3, 2, 2]")},
      {"Cropping", Between("layers { cropping2d { cropping: [1, 2, 0, 1] } }")},
      {"CroppingShared",
       Between("layers { name: 'c' inputs: 'first' cropping2d { cropping: 1 } } layers { name: 'd' inputs: 'first' "
               "max_pooling2d { pool_size: 3 strides: 1 } } layers { inputs: ['c', 'd'] add {} }")},
      {"PReLU", Between("layers { prelu { alpha_initializer { kind: RANDOM_NORMAL stddev: 0.5 } } }")},
      {"PReLUOfChannels", Between("layers { prelu { shared_axes: [1, 2] alpha_initializer { kind: RANDOM_NORMAL "
                                  "stddev: 0.5 } alpha_regularizer { l2: 0.1 } } }")},
      {"PReLUShared", Along("layers { name: 'p' inputs: 'first' prelu { shared_axes: 1 alpha_initializer { kind: "
                            "RANDOM_NORMAL stddev: 0.5 } } } layers { inputs: ['first', "
                            "'p'] add {} }")},
      {"PReLUOfOne", features + "layers { dense { units: 6 } } layers { prelu { shared_axes: 1 alpha_initializer { "
                                "kind: RANDOM_NORMAL stddev: 0.5 } } } layers { "
                                "dense { units: 3 activation: SOFTMAX } }"},
      {"PReLUFlattened",
       Between("layers { flatten {} } layers { prelu { alpha_initializer { kind: RANDOM_NORMAL stddev: 0.5 } } }")},
      {"DotOfRows",
       features +
           "layers { name: 'a' dense { units: 6 } } layers { name: 'b' inputs: 'input_layer' dense { units: 6 } } "
           "layers { inputs: ['a', 'b'] dot { axes: 1 } } layers { dense { units: 3 activation: SOFTMAX } }"},
      {"DotNormalized",
       features +
           "layers { name: 'a' dense { units: 6 } } layers { name: 'b' inputs: 'input_layer' dense { units: 6 } } "
           "layers { inputs: ['a', 'b'] dot { axes: -1 normalize: true } } layers { dense { units: 3 activation: "
           "SOFTMAX } }"},
      {"DotOfSequences", Along("layers { name: 'a' conv1d { filters: 4 kernel_size: 3 } } layers { inputs: ['first', "
                               "'a'] dot { axes: 2 } }")},
      {"DotOverSteps",
       Along(
           "layers { name: 'a' conv1d { filters: 3 kernel_size: 1 } } layers { inputs: ['a', 'first'] dot { axes: [1, "
           "1] normalize: true } }")},
      {"DotMixed",
       Along("layers { name: 'a' permute { dims: [2, 1] } } layers { inputs: ['first', 'a'] dot { axes: [2, "
             "1] } }")},
      {"DotOfImageAndRow",
       Between("layers { name: 'r' inputs: 'first' global_average_pooling2d {} } layers { inputs: ['first', 'r'] dot { "
               "axes: [3, 1] } }")},
      {"DotOverColumns",
       Between("layers { name: 'p' inputs: 'first' reshape { target_shape: [6, 15] } } layers { name: 'q' "
               "global_average_pooling1d {} } layers { name: 'r' dense { units: 6 } } layers { inputs: ['first', 'r'] "
               "dot { axes: [2, 1] normalize: true } }")},
      {"DotWithItself", Along("layers { inputs: ['first', 'first'] dot { axes: 2 } }")},
      {"SpatialDropout", Between("layers { spatial_dropout2d { rate: 0.4 } }")},
      {"Reshape",
       Between("layers { reshape { target_shape: [-1, 6] } } layers { conv1d { filters: 2 kernel_size: 3 } }")},
      {"ReshapeToImage", features +
                             "layers { dense { units: 24 } } layers { reshape { target_shape: [4, 3, -1] } } "
                             "layers { conv2d { filters: 2 kernel_size: 2 } }" +
                             end},
      {"ReshapeFlattened", Between("layers { flatten {} } layers { reshape { target_shape: [3, 10, 3] } } "
                                   "layers { max_pooling2d {} }")},
      {"PermuteSequence", Along("layers { permute { dims: [2, 1] } } layers { conv1d { filters: 3 kernel_size: 2 } }")},
      {"PermuteImage",
       Between("layers { permute { dims: [3, 1, 2] } } layers { conv2d { filters: 3 kernel_size: 2 } }")},
      {"PermuteNothing", features + "layers { dense { units: 4 } } layers { permute { dims: 1 } } "
                                    "layers { dense { units: 3 activation: SOFTMAX } }"},
      {"Multiply", Between(branch + "layers { inputs: ['first', 'a', 'first'] multiply {} }")},
      {"MultiplyGate", Between(gate + "layers { inputs: ['first', 'gate'] multiply {} }")},
      {"MultiplyGateFirst", Between(gate + "layers { name: 'r' reshape { target_shape: [1, 1, 3] } } "
                                           "layers { inputs: ['r', 'first'] multiply {} }")},
      {"MultiplyPlaces",
       Between("layers { name: 'a' inputs: 'first' conv2d { filters: 1 kernel_size: 1 activation: SIGMOID } } "
               "layers { inputs: ['first', 'a'] multiply {} }")},
      {"MultiplyCrosswise",
       Between("layers { name: 'a' conv2d { filters: 3 kernel_size: [5, 1] } } layers { name: 'b' inputs: 'first' "
               "conv2d { filters: 1 kernel_size: [1, 6] } } layers { inputs: ['a', 'b'] multiply {} }")},
      {"Average", Between(branch + "layers { inputs: ['first', 'a', 'a'] average {} }")},
      {"Maximum", Between(branch + "layers { inputs: ['first', 'a'] maximum {} }")},
      {"MaximumOfEqual", Between(branch + "layers { inputs: ['a', 'first', 'a'] maximum {} }")},
      {"Attention", Along("layers { inputs: ['first', 'first'] multi_head_attention { num_heads: 2 key_dim: 3 } }")},
      {"AttentionCausal", Along("layers { inputs: ['first', 'first'] multi_head_attention { num_heads: 2 key_dim: 3 "
                                "use_causal_mask: true } }")},
      {"AttentionDropout",
       Along("layers { inputs: ['first', 'first'] multi_head_attention { num_heads: 3 key_dim: 2 value_dim: 4 "
             "dropout: 0.4 use_bias: false } }")},
      {"AttentionCross",
       Along("layers { name: 'v' max_pooling1d {} } layers { name: 'k' inputs: 'v' conv1d { filters: 3 kernel_size: 1 "
             "} } layers { inputs: ['first', 'v', 'k'] multi_head_attention { num_heads: 2 key_dim: 3 value_dim: 2 "
             "} }")},
      {"AttentionCrossCausal",
       Along("layers { name: 'v' conv1d { filters: 5 kernel_size: 4 } } layers { inputs: ['first', 'v'] "
             "multi_head_attention { num_heads: 1 key_dim: 4 use_causal_mask: true dropout: 0.2 } }")},
      {"AttentionOfInput",
       "layers { name: 'x' input { shape: [4, 3] } } layers { inputs: ['x', 'x'] "
       "multi_head_attention { num_heads: 2 key_dim: 2 } }" +
           end},
      {"DenseOnSequence", Along("layers { dense { units: 5 activation: GELU } } layers { dense { units: 3 } }")},
      {"EluAlpha", Between("layers { activation { activation: ELU alpha: 0.3 } }")},
      {"Relu6Layer", Between("layers { rescaling { scale: 9 } } layers { activation { activation: RELU6 } }")},
      {"NormRelu6", Between("layers { batch_normalization {} } layers { activation { activation: RELU6 } }")},
      {"SiluShared", Between("layers { name: 'a' activation { activation: SILU } } layers { inputs: ['first', 'a'] "
                             "add {} } layers { activation { activation: SILU } }")},
  };
  for (const char* f : {"ELU", "GELU", "GELU_TANH", "SILU", "SOFTPLUS", "RELU6"}) {
    const std::string activation = std::string(" activation: ") + f + " ";
    cases.push_back({std::string("Layer_") + f, Between("layers { activation {" + activation + "} }")});
    cases.push_back(
        {std::string("Conv2D_") + f, Between("layers { conv2d { filters: 4 kernel_size: 3" + activation + "} }")});
    cases.push_back(
        {std::string("Conv1D_") + f, Along("layers { conv1d { filters: 4 kernel_size: 3" + activation + "} }")});
    cases.push_back(
        {std::string("Depthwise_") + f, Between("layers { depthwise_conv2d { kernel_size: 3" + activation + "} }")});
    cases.push_back({std::string("Separable_") + f,
                     Between("layers { separable_conv2d { filters: 4 kernel_size: 3" + activation + "} }")});
    cases.push_back(
        {std::string("Transpose_") + f,
         Between("layers { conv2d_transpose { filters: 2 kernel_size: 2" + activation + "} }", "[3, 3, 2]")});
    cases.push_back({std::string("Dense_") + f, features + "layers { dense { units: 6" + activation +
                                                    "} } layers { dense { units: 3 activation: "
                                                    "SOFTMAX } }"});
    cases.push_back(
        {std::string("Joined_") + f, Between("layers { conv2d { filters: 4 kernel_size: 3 } } layers { activation {" +
                                             activation + "} } layers { max_pooling2d { pool_size: 2 strides: 1 } }")});
  }
  return cases;
}

}  // namespace cairn
