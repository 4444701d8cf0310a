// Models with the layers of FeatureCases in the shapes that take different paths in a backend with blocked layouts:
// channels that fill a vector and that do not, odd sizes, branches. For comparing backends.
#pragma once

#include <string>
#include <vector>

#include "tests/unit/backend/layer_case.h"

namespace cairn {

inline std::vector<LayerCase> WideFeatureCases() {
  const auto image = [](const std::string& shape, const std::string& layers) {
    return "layers { input { shape: " + shape + " } } " + layers +
           " layers { flatten {} } layers { dense { units: 4 activation: SOFTMAX } }";
  };
  const auto text = [](const std::string& layers) {
    return "layers { input { shape: 19 } } layers { name: 'x' embedding { input_dim: 50 output_dim: 24 } } " + layers +
           " layers { global_average_pooling1d {} } layers { dense { units: 4 activation: SOFTMAX } }";
  };
  const std::string conv16 = "layers { conv2d { filters: 16 kernel_size: 3 padding: SAME activation: RELU } } ";
  const std::string conv20 = "layers { conv2d { filters: 20 kernel_size: 3 padding: SAME activation: RELU } } ";
  const std::string conv32 = "layers { conv2d { filters: 32 kernel_size: 3 padding: SAME } } ";
  return {
      {"LayerNormWide", image("[7, 5, 3]", conv32 + "layers { layer_normalization {} } " + conv20 +
                                               "layers { layer_normalization { center: false } }")},
      {"LayerNormFirst", image("[7, 5, 3]", "layers { layer_normalization {} } " + conv16)},
      {"LayerNormShared", image("[7, 5, 3]", conv16 + "layers { name: 'n' layer_normalization {} } layers { name: 'c' "
                                                      "conv2d { filters: 16 kernel_size: 1 } } layers { inputs: ['c', "
                                                      "'n'] add {} }")},
      {"GroupNormWide", image("[9, 6, 3]", conv32 + "layers { group_normalization {} } " + conv20 +
                                               "layers { group_normalization { groups: 5 scale: false } }")},
      {"GroupNormFirst", image("[9, 6, 4]", "layers { group_normalization { groups: 2 } } " + conv16)},
      {"SeparableWide", image("[9, 9, 16]", conv32 + "layers { separable_conv2d { filters: 48 kernel_size: 3 padding: "
                                                     "SAME activation: RELU6 } } layers { separable_conv2d { filters: "
                                                     "17 kernel_size: 3 strides: 2 activation: SILU } }")},
      {"SeparablePadded", image("[8, 8, 3]", conv16 + "layers { zero_padding2d { padding: [0, 1, 0, 1] } } layers { "
                                                      "separable_conv2d { filters: 20 kernel_size: 3 strides: 2 } }")},
      {"TransposeWide", image("[5, 4, 3]", conv32 + "layers { conv2d_transpose { filters: 16 kernel_size: 3 strides: 2 "
                                                    "padding: SAME activation: RELU } } layers { conv2d_transpose { "
                                                    "filters: 20 kernel_size: 2 strides: 2 activation: SIGMOID } }")},
      {"TransposeKernelBelowStride", image("[4, 3, 3]", conv20 + "layers { conv2d_transpose { filters: 17 kernel_size: "
                                                                 "1 strides: [2, 3] activation: LEAKY_RELU } }")},
      {"TransposeOfInput", image("[4, 3, 3]",
                                 "layers { conv2d_transpose { filters: 8 kernel_size: 4 strides: 2 "
                                 "padding: SAME } }")},
      {"UpSamplingWide", image("[4, 3, 3]", conv20 + "layers { up_sampling2d {} } " + conv32 +
                                                "layers { up_sampling2d { size: [3, 2] interpolation: BILINEAR } }")},
      {"SpatialDropoutWide",
       image("[6, 6, 3]", conv20 + "layers { spatial_dropout2d { rate: 0.3 } } " + conv32 +
                              "layers { spatial_dropout2d { rate: 0.5 } } layers { dropout { rate: 0.2 } }")},
      {"SqueezeExcite",
       image("[6, 7, 3]", conv32 +
                              "layers { name: 'x' activation { activation: SILU } } layers { "
                              "global_average_pooling2d {} } layers { dense { units: 8 activation: SILU } } layers "
                              "{ dense { units: 32 activation: SIGMOID } } layers { name: 'g' reshape { "
                              "target_shape: [1, 1, 32] } } layers { inputs: ['x', 'g'] multiply {} } " +
                              conv16)},
      {"GatedWide", image("[6, 7, 3]",
                          "layers { name: 'i' conv2d { filters: 20 kernel_size: 1 } } layers { name: 'a' "
                          "conv2d { filters: 20 kernel_size: 3 padding: SAME } } layers { name: 'b' inputs: "
                          "'i' conv2d { filters: 20 kernel_size: 1 activation: SIGMOID } } layers { "
                          "inputs: ['a', 'b', 'i'] multiply {} } " +
                              conv16)},
      {"MaximumWide", image("[6, 7, 3]",
                            "layers { name: 'i' conv2d { filters: 20 kernel_size: 1 } } layers { name: 'a' "
                            "conv2d { filters: 20 kernel_size: 3 padding: SAME } } layers { name: 'b' "
                            "inputs: 'i' conv2d { filters: 20 kernel_size: 1 } } layers { inputs: ['a', "
                            "'b', 'i'] maximum {} } " +
                                conv16)},
      {"AverageOfInputs", image("[6, 7, 3]",
                                "layers { name: 'a' conv2d { filters: 3 kernel_size: 1 } } layers { inputs: "
                                "['input_layer', 'a'] average {} }")},
      {"MaximumWithInput", image("[6, 7, 3]",
                                 "layers { name: 'a' conv2d { filters: 3 kernel_size: 1 } } layers { "
                                 "inputs: ['input_layer', 'a'] maximum {} }")},
      {"ReshapeWide", image("[6, 4, 3]", conv20 +
                                             "layers { reshape { target_shape: [24, 20] } } layers { permute { "
                                             "dims: [2, 1] } } layers { dense { units: 17 activation: GELU } } "
                                             "layers { reshape { target_shape: [4, 5, 17] } } " +
                                             conv16)},
      {"PermuteWide", image("[6, 4, 3]", conv20 + "layers { permute { dims: [2, 3, 1] } } " + conv16)},
      {"Conv1DWide", text("layers { conv1d { filters: 32 kernel_size: 5 activation: RELU padding: SAME } } layers { "
                          "max_pooling1d {} } layers { conv1d { filters: 20 kernel_size: 3 activation: GELU } } layers "
                          "{ average_pooling1d { pool_size: 3 strides: 2 padding: SAME } }")},
      {"AttentionWide",
       text("layers { name: 'm' inputs: ['x', 'x'] multi_head_attention { num_heads: 3 key_dim: 16 "
            "dropout: 0.1 } } layers { inputs: ['x', 'm'] add {} } layers { layer_normalization {} }")},
      {"AttentionCausalWide", text("layers { inputs: ['x', 'x'] multi_head_attention { num_heads: 2 key_dim: 8 "
                                   "value_dim: 20 use_causal_mask: true } } layers { dense { units: 33 } }")},
      {"AttentionOverPixels", image("[4, 5, 3]", conv20 + "layers { name: 's' reshape { target_shape: [20, 20] } } "
                                                          "layers { inputs: ['s', 's'] multi_head_attention { "
                                                          "num_heads: 2 key_dim: 10 } }")},
      {"SequenceOutput",
       "layers { input { shape: [6, 5] } } layers { conv1d { filters: 20 kernel_size: 3 } } layers { "
       "dense { units: 3 } }",
       "kind: MEAN_SQUARED_ERROR"},
      {"ActivationsOfBlocks",
       image(
           "[6, 6, 3]",
           "layers { conv2d { filters: 20 kernel_size: 1 activation: SILU } } layers { conv2d { filters: "
           "20 kernel_size: 1 activation: GELU } } layers { conv2d { filters: 20 kernel_size: 1 } } "
           "layers { activation { activation: SOFTPLUS } } layers { conv2d { filters: 20 kernel_size: 1 "
           "} } layers { activation { activation: GELU_TANH } } layers { depthwise_conv2d { kernel_size: "
           "3 use_bias: false activation: ELU } } layers { batch_normalization {} } layers { activation { activation: "
           "RELU6 } }")},
      {"GeluShared", image("[6, 6, 3]", conv20 + "layers { name: 'a' activation { activation: GELU } } layers { name: "
                                                 "'b' conv2d { filters: 20 kernel_size: 1 } } layers { inputs: ['a', "
                                                 "'b'] add {} } layers { activation { activation: SILU } } layers { "
                                                 "max_pooling2d {} }")},
  };
}

}  // namespace cairn
