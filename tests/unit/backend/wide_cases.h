// Not part of LayerCases: models whose channels fill vectors and tiles, and some that do not; models in which layers
// are fused and buffers shared.
#pragma once

#include <string>
#include <vector>

#include "tests/unit/backend/layer_cases.h"

namespace cairn {

inline std::string Image(const std::string& shape, const std::string& layers) {
  return "layers { input { shape: " + shape + " } } " + layers +
         " layers { flatten {} } layers { dense { units: 4 activation: SOFTMAX } }";
}

// A residual block whose shortcut is a convolution with strides and a batch normalization too; both have a bias.
// shortcut, main: how the normalizations before the sum are called.
inline std::string Projected(const std::string& shape, int filters, bool relu, const std::string& shortcut = "",
                             const std::string& main = "") {
  const std::string conv = " conv2d { filters: " + std::to_string(filters) + " kernel_size: 1 strides: 2 } } ",
                    norm = " batch_normalization {} ";
  return Image(
      shape,
      "layers { name: 'i' conv2d { filters: 8 kernel_size: 3 padding: SAME activation: RELU } } layers { name: 'a'" +
          conv + "layers { name: 'an'" + norm + shortcut + "} layers { name: 'b' inputs: 'i'" + conv +
          "layers { batch_normalization {} } layers { activation { activation: RELU } } layers { name: 'c' conv2d { "
          "filters: " +
          std::to_string(filters) + " kernel_size: 3 padding: SAME } } layers { name: 'cn'" + norm + main +
          "} layers { inputs: ['an', 'cn'] add {} } " + (relu ? "layers { activation { activation: RELU } }" : ""));
}

inline std::vector<LayerCase> WideCases() {
  const std::string conv16 = "layers { conv2d { filters: 16 kernel_size: 3 padding: SAME activation: RELU } } ";
  const std::string conv32 = "layers { conv2d { filters: 32 kernel_size: 3 padding: SAME activation: RELU } } ";
  const std::string conv20 = "layers { conv2d { filters: 20 kernel_size: 3 padding: SAME activation: RELU } } ";
  const std::string norm_relu = "layers { batch_normalization {} } layers { activation { activation: RELU } } ";
  std::vector<LayerCase> cases = {
      {"FashionCnn",
       Image("[14, 14, 1]", "layers { rescaling { scale: 0.5 } } " + conv32 +
                                "layers { max_pooling2d {} } layers { conv2d { filters: 64 kernel_size: 3 "
                                "padding: SAME activation: RELU } } layers { max_pooling2d {} }")},
      {"ColourCnn", Image("[9, 11, 3]", conv32 + "layers { max_pooling2d { pool_size: 3 strides: 2 padding: SAME } } " +
                                            conv20 + "layers { average_pooling2d { padding: SAME } }")},
      {"StridedWide", Image("[11, 8, 16]", conv16 + "layers { conv2d { filters: 48 kernel_size: [3, 2] strides: [2, 3] "
                                                    "padding: SAME activation: TANH } }")},
      {"DilatedWide",
       Image("[11, 9, 16]", conv16 + "layers { conv2d { filters: 17 kernel_size: 3 dilation_rate: [2, 3] } }")},
      {"KernelAsLargeAsImage", Image("[7, 7, 3]", conv16 + "layers { conv2d { filters: 16 kernel_size: 7 } }")},
      {"BigKernelSame",
       Image("[4, 5, 3]", conv16 + "layers { conv2d { filters: 16 kernel_size: 5 padding: SAME strides: 2 } }")},
      {"Pointwise", Image("[6, 5, 24]",
                          "layers { conv2d { filters: 40 kernel_size: 1 activation: LEAKY_RELU } } "
                          "layers { conv2d { filters: 8 kernel_size: 1 strides: 2 } }")},
      {"ActivationsWide",
       Image("[6, 6, 3]",
             "layers { conv2d { filters: 20 kernel_size: 3 } } layers { activation { activation: SIGMOID } } "
             "layers { conv2d { filters: 24 kernel_size: 3 activation: SIGMOID } } layers { dropout { rate: "
             "0.3 } } layers { activation { activation: TANH } }")},
      {"PooledSigmoid", Image("[8, 8, 3]",
                              "layers { conv2d { filters: 20 kernel_size: 3 activation: SIGMOID } } "
                              "layers { max_pooling2d { pool_size: 3 strides: 1 } }")},
      {"PooledLeakyRelu", Image("[8, 8, 3]",
                                "layers { conv2d { filters: 20 kernel_size: 3 activation: LEAKY_RELU } } "
                                "layers { max_pooling2d {} } layers { dropout { rate: 0.5 } }")},
      {"DropoutWide", Image("[8, 8, 3]", conv20 + "layers { dropout { rate: 0.25 } } layers { flatten {} } "
                                                  "layers { dropout { rate: 0.5 } }")},
      {"DenseOnFlattenedPadding",
       Image("[6, 6, 3]", conv20 + "layers { flatten {} } layers { dense { units: 24 activation: RELU } }")},
      {"NormOfFlattened", Image("[4, 4, 3]", conv20 + "layers { flatten {} } layers { batch_normalization {} }")},
      {"NormWide", Image("[6, 6, 3]", conv20 + norm_relu + conv32 + norm_relu)},
      {"NormFirst", Image("[6, 6, 3]", "layers { batch_normalization {} } " + conv16)},
      {"NormShared",
       Image("[6, 6, 3]", conv16 + "layers { name: 'n' batch_normalization {} } layers { name: 'r' "
                                   "activation { activation: RELU } } layers { name: 'c' conv2d { filters: "
                                   "16 kernel_size: 3 padding: SAME } } layers { inputs: ['c', 'n'] add {} }")},
      {"GlobalWide", Image("[7, 5, 3]", conv20 + "layers { global_average_pooling2d {} }")},
      {"GlobalBlocks", Image("[7, 5, 3]", conv32 + "layers { global_average_pooling2d {} }")},
      {"DepthwiseWide", Image("[9, 9, 32]",
                              "layers { conv2d { filters: 32 kernel_size: 1 } } layers { depthwise_conv2d { "
                              "kernel_size: 3 padding: SAME activation: RELU } }")},
      {"DepthwiseStride", Image("[9, 9, 3]", conv20 +
                                                 "layers { zero_padding2d { padding: [0, 1, 0, 1] } } layers { "
                                                 "depthwise_conv2d { kernel_size: 3 strides: 2 use_bias: false } }" +
                                                 norm_relu)},
      {"DepthwiseFiveWide",
       Image("[9, 6, 3]", conv20 + "layers { depthwise_conv2d { kernel_size: 5 strides: 2 padding: SAME } }")},
      {"DepthwiseSevenWide",
       Image("[6, 5, 3]", conv16 + "layers { depthwise_conv2d { kernel_size: 7 padding: SAME use_bias: false } }")},
      {"DepthwiseMultiplierWide",
       Image("[7, 7, 16]", conv16 + "layers { depthwise_conv2d { kernel_size: 3 depth_multiplier: 3 } }")},
      {"ZeroPaddingAlone", Image("[5, 5, 3]", conv16 + "layers { zero_padding2d { padding: [1, 0, 0, 2] } } "
                                                       "layers { max_pooling2d {} }")},
      {"ZeroPaddingPooled", Image("[5, 5, 3]",
                                  "layers { conv2d { filters: 16 kernel_size: 3 padding: SAME } } layers { "
                                  "zero_padding2d { padding: [1, 1, 1, 1] } } layers { max_pooling2d { pool_size: 3 "
                                  "strides: 2 } }")},
      {"ZeroPaddingAveraged", Image("[5, 5, 3]", conv16 + "layers { zero_padding2d { padding: [1, 0, 0, 2] } } "
                                                          "layers { average_pooling2d {} }")},
      {"ProjectedBlock", Projected("[7, 8, 3]", 16, true)},
      {"ProjectedBlockOdd", Projected("[7, 6, 3]", 5, true)},
      {"ProjectedBlockLinear", Projected("[6, 6, 3]", 16, false)},
      {"ProjectedBlockFrozen", Projected("[6, 6, 3]", 16, true, "trainable: false", "trainable: false")},
      {"ProjectedBlockInference", Projected("[6, 6, 3]", 16, true, "training: false", "training: false")},
      {"ProjectedBlockHalfInference", Projected("[6, 6, 3]", 16, true, "", "training: false")},
      {"ProjectedBlockFrozenBesideInference", Projected("[6, 6, 3]", 16, true, "trainable: false", "training: false")},
      {"TwoNormsOfOne",
       Image("[6, 6, 3]", conv16 + "layers { name: 'c' conv2d { filters: 16 kernel_size: 1 } } layers { name: 'a' "
                                   "batch_normalization {} } layers { name: 'b' inputs: 'c' batch_normalization {} } "
                                   "layers { inputs: ['a', 'b'] add {} } layers { activation { activation: RELU } }")},
      {"SoftmaxWide", Image("[4, 4, 3]", "layers { conv2d { filters: 20 kernel_size: 3 activation: SOFTMAX } }")},
      {"RescalingInside", Image("[6, 6, 3]", conv20 + "layers { rescaling { scale: 2.0 offset: -1.0 } } " + conv16)},
      {"RescalingShared", Image("[6, 6, 3]",
                                "layers { name: 's' rescaling { scale: 2.0 offset: -1.0 } } layers { name: 'a' "
                                "conv2d { filters: 3 kernel_size: 3 padding: SAME } } layers { inputs: ['s', "
                                "'a', 'input_layer'] add {} }")},
      {"ConcatenateBlocks",
       Image("[6, 6, 3]",
             "layers { name: 'a' conv2d { filters: 16 kernel_size: 3 padding: SAME } } layers { name: 'b' conv2d "
             "{ filters: 32 kernel_size: 3 padding: SAME } } layers { inputs: ['a', 'b', 'a'] concatenate {} "
             "} " +
                 conv16)},
      {"ConcatenateUneven",
       Image("[6, 6, 3]",
             "layers { name: 'a' conv2d { filters: 16 kernel_size: 3 padding: SAME } } layers { name: 'b' conv2d "
             "{ filters: 20 kernel_size: 3 padding: SAME } } layers { inputs: ['a', 'b'] concatenate {} } " +
                 conv16)},
      {"ResidualBlocks",
       Image("[8, 8, 3]",
             "layers { name: 'stem' conv2d { filters: 16 kernel_size: 3 padding: SAME use_bias: false } } "
             "layers { batch_normalization {} } layers { name: 'x' activation { activation: RELU } } "
             "layers { conv2d { filters: 16 kernel_size: 3 padding: SAME use_bias: false } } " +
                 norm_relu +
                 "layers { conv2d { filters: 16 kernel_size: 3 padding: SAME use_bias: false } } "
                 "layers { name: 'y' batch_normalization {} } layers { name: 'sum' inputs: ['x', 'y'] add {} } "
                 "layers { name: 'z' activation { activation: RELU } } "
                 "layers { name: 'short' inputs: 'z' conv2d { filters: 32 kernel_size: 1 strides: 2 } } "
                 "layers { inputs: 'z' conv2d { filters: 32 kernel_size: 3 strides: 2 padding: SAME } } "
                 "layers { name: 'w' batch_normalization {} } layers { inputs: ['w', 'short'] add {} } "
                 "layers { activation { activation: RELU } } layers { global_average_pooling2d {} }")},
      {"Inception",
       Image("[8, 8, 3]", conv16 + "layers { name: 'i' max_pooling2d {} } "
                                   "layers { name: 'a' conv2d { filters: 16 kernel_size: 1 activation: RELU } } "
                                   "layers { name: 'b' inputs: 'i' conv2d { filters: 16 kernel_size: 3 padding: SAME "
                                   "activation: RELU } } layers { name: 'c' inputs: 'i' max_pooling2d { pool_size: 3 "
                                   "strides: 1 padding: SAME } } layers { inputs: ['a', 'b', 'c'] concatenate {} }")},
      {"AddOfTwoActivations", Image("[8, 8, 3]",
                                    "layers { name: 'i' conv2d { filters: 16 kernel_size: 1 } } "
                                    "layers { name: 'a' conv2d { filters: 16 kernel_size: 1 activation: TANH } } "
                                    "layers { name: 'b' inputs: 'i' conv2d { filters: 16 kernel_size: 3 padding: SAME "
                                    "activation: SIGMOID } } layers { inputs: ['a', 'b'] add {} }")},
      {"ImageOutput",
       "layers { input { shape: [5, 5, 3] } } " + conv20 + "layers { conv2d { filters: 2 kernel_size: 3 } }",
       "kind: MEAN_SQUARED_ERROR"},
      {"ImageSigmoid",
       "layers { input { shape: [5, 5, 3] } } layers { conv2d { filters: 20 kernel_size: 3 activation: SIGMOID } }",
       "kind: BINARY_CROSSENTROPY"},
      {"Lines",
       "layers { input { shape: [7, 5] } } layers { dense { units: 9 activation: RELU } } layers { flatten {} } "
       "layers { dense { units: 4 activation: SOFTMAX } }"},
      {"Mlp",
       "layers { input { shape: 100 } } layers { rescaling { scale: 0.1 } } layers { dense { units: 33 activation: "
       "RELU } } layers { dropout { rate: 0.5 } } layers { dense { units: 20 activation: TANH } } layers { dense { "
       "units: 20 activation: SIGMOID } } layers { dense { units: 4 activation: SOFTMAX } }"},
      {"OneUnit", "layers { input { shape: 3 } } layers { dense { units: 1 activation: SIGMOID } }",
       "kind: BINARY_CROSSENTROPY"},
  };
  return cases;
}

}  // namespace cairn
