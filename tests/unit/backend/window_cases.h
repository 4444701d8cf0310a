// Cases of LayerCases (layer_cases.h): windows along sequences and over volumes, groups of channels, causal and
// transposed convolutions, global poolings.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/unit/backend/layer_case.h"

namespace cairn {

// Layers between a convolution along a sequence, or over a volume, and a dense layer with softmax.
inline std::string BetweenSteps(const std::string& layers, const std::string& shape = "[7, 2]", int filters = 4) {
  return "layers { input { shape: " + shape +
         " } } layers { name: 'first' conv1d { filters: " + std::to_string(filters) + " kernel_size: 1 } } " + layers +
         " layers { flatten {} } layers { name: 'last' dense { units: 4 activation: SOFTMAX } }";
}
inline std::string BetweenVolumes(const std::string& layers, const std::string& shape = "[4, 3, 5, 2]",
                                  int filters = 3) {
  return "layers { input { shape: " + shape +
         " } } layers { name: 'first' conv3d { filters: " + std::to_string(filters) + " kernel_size: 1 } } " + layers +
         " layers { flatten {} } layers { name: 'last' dense { units: 3 activation: SOFTMAX } }";
}

// Other sizes.
inline std::vector<LayerCase> ResampleCases() {
  const auto resizing = [](const std::string& fields) { return Between("layers { resizing { " + fields + " } }"); };
  return {
      {"ResizingBilinear", resizing("height: 8 width: 4")},
      {"ResizingBilinearOfOne", resizing("height: 1 width: 13")},
      {"ResizingSame", resizing("height: 5 width: 6")},
      {"ResizingNearest", resizing("height: 3 width: 11 interpolation: NEAREST")},
      {"ResizingBicubic", resizing("height: 7 width: 4 interpolation: BICUBIC")},
      {"ResizingLanczos3", resizing("height: 9 width: 4 interpolation: LANCZOS3")},
      {"ResizingLanczos5", resizing("height: 4 width: 8 interpolation: LANCZOS5")},
      {"ResizingCropped", resizing("height: 4 width: 7 crop_to_aspect_ratio: true")},
      {"ResizingCroppedWide", resizing("height: 6 width: 3 crop_to_aspect_ratio: true interpolation: BICUBIC")},
      {"ResizingPadded", resizing("height: 8 width: 4 pad_to_aspect_ratio: true fill_value: 0.5")},
      {"ResizingPaddedNearest",
       resizing("height: 4 width: 9 pad_to_aspect_ratio: true fill_value: -1 interpolation: NEAREST")},
      {"ResizingShared", Between("layers { name: 'r' inputs: 'first' resizing { height: 3 width: 3 } } layers { name: "
                                 "'p' inputs: 'first' average_pooling2d { pool_size: [3, 4] strides: 1 } } layers { "
                                 "inputs: ['r', 'p'] add {} }")},
      {"CenterCrop", Between("layers { center_crop { height: 2 width: 3 } }")},
      {"CenterCropLarger", Between("layers { center_crop { height: 7 width: 4 } }")},
      {"CenterCropSame", Between("layers { center_crop { height: 5 width: 6 } }")},
      {"AdaptiveAverage1D", BetweenSteps("layers { adaptive_average_pooling1d { output_size: 3 } }")},
      {"AdaptiveAverage2D", Between("layers { adaptive_average_pooling2d { output_size: [2, 4] } }")},
      {"AdaptiveAverage2DLarger", Between("layers { adaptive_average_pooling2d { output_size: 8 } }")},
      {"AdaptiveAverage3D", BetweenVolumes("layers { adaptive_average_pooling3d { output_size: [3, 2, 2] } }")},
      {"AdaptiveMax1D", BetweenSteps("layers { adaptive_max_pooling1d { output_size: 3 } }")},
      {"AdaptiveMax2D", Between("layers { adaptive_max_pooling2d { output_size: [2, 4] } }")},
      {"AdaptiveMax2DLarger", Between("layers { adaptive_max_pooling2d { output_size: [7, 2] } }")},
      {"AdaptiveMax3D", BetweenVolumes("layers { adaptive_max_pooling3d { output_size: [3, 2, 2] } }")},
  };
}

inline std::vector<LayerCase> WindowLayerCases() {
  const std::string four = "layers { conv2d { filters: 4 kernel_size: 1 } } ";
  std::vector<LayerCase> cases = {
      {"GroupsTwo", Between(four + "layers { conv2d { filters: 6 kernel_size: 3 groups: 2 activation: TANH } }")},
      {"GroupsSameStrides",
       Between(four + "layers { conv2d { filters: 4 kernel_size: [3, 2] strides: 2 padding: SAME groups: 2 } }")},
      {"GroupsEach", Between(four + "layers { conv2d { filters: 8 kernel_size: 2 groups: 4 use_bias: false } }")},
      {"GroupsPointwise", Between(four + "layers { conv2d { filters: 2 kernel_size: 1 strides: 2 groups: 2 } }")},
      {"GroupsDilated",
       Between(four + "layers { conv2d { filters: 4 kernel_size: 2 dilation_rate: 2 groups: 2 activation: RELU } } "
                      "layers { batch_normalization {} }")},
      {"GroupsOfSequence", BetweenSteps("layers { conv1d { filters: 6 kernel_size: 3 groups: 2 } }")},
      {"GroupsOfVolume",
       BetweenVolumes("layers { conv3d { filters: 2 kernel_size: 2 groups: 2 } }", "[3, 3, 4, 2]", 4)},
      {"Causal", BetweenSteps("layers { conv1d { filters: 3 kernel_size: 3 padding: CAUSAL activation: TANH } }")},
      {"CausalDilated",
       BetweenSteps("layers { conv1d { filters: 3 kernel_size: 3 dilation_rate: 2 padding: CAUSAL groups: 1 } }")},
      {"CausalStrides", BetweenSteps("layers { conv1d { filters: 3 kernel_size: 4 strides: 2 padding: CAUSAL } }")},
      {"GlobalMax1D", BetweenSteps("layers { global_max_pooling1d {} }")},
      {"GlobalMax2D", Between("layers { global_max_pooling2d {} }")},
      {"GlobalMax2DLarge",
       Between("layers { conv2d { filters: 2 kernel_size: 1 } } layers { global_max_pooling2d {} }", "[17, 18, 1]")},
      {"GlobalMax2DKept",
       Between("layers { global_max_pooling2d { keepdims: true } } layers { conv2d { filters: 2 kernel_size: 1 } }")},
      {"GlobalMaxOfRelu", Between("layers { conv2d { filters: 3 kernel_size: 2 activation: RELU } } "
                                  "layers { global_max_pooling2d {} }")},
      {"GlobalMax1DKept",
       BetweenSteps(
           "layers { global_max_pooling1d { keepdims: true } } layers { conv1d { filters: 2 kernel_size: 1 } }")},
      {"GlobalAverage1DKept", BetweenSteps("layers { global_average_pooling1d { keepdims: true } } "
                                           "layers { conv1d { filters: 2 kernel_size: 1 } }")},
      {"GlobalAverage2DKept",
       Between(
           "layers { name: 'p' global_average_pooling2d { keepdims: true } } layers { name: 'g' conv2d { filters: 3 "
           "kernel_size: 1 activation: SIGMOID } } layers { inputs: ['first', 'g'] multiply {} }")},
      {"GlobalAverage3D", BetweenVolumes("layers { global_average_pooling3d {} }")},
      {"GlobalAverage3DKept", BetweenVolumes("layers { global_average_pooling3d { keepdims: true } } "
                                             "layers { conv3d { filters: 2 kernel_size: 1 } }")},
      {"GlobalMax3D", BetweenVolumes("layers { global_max_pooling3d {} }")},
      {"GlobalMax3DKept", BetweenVolumes("layers { global_max_pooling3d { keepdims: true } }")},
      {"Cropping1D", BetweenSteps("layers { cropping1d { cropping: [2, 1] } }")},
      {"ZeroPadding1D",
       BetweenSteps("layers { zero_padding1d { padding: [0, 2] } } layers { conv1d { filters: 2 kernel_size: 3 } }")},
      {"ZeroPadding1DShared",
       BetweenSteps("layers { name: 'p' zero_padding1d {} } layers { name: 'c' inputs: 'first' conv1d { filters: 4 "
                    "kernel_size: 1 } } layers { name: 'm' inputs: 'p' max_pooling1d { pool_size: 3 strides: 1 } } "
                    "layers { inputs: ['c', 'm'] add {} }")},
      {"UpSampling1D", BetweenSteps("layers { up_sampling1d { size: 3 } }", "[3, 2]")},
      {"DepthwiseAlong", BetweenSteps("layers { depthwise_conv1d { kernel_size: 3 activation: TANH } }")},
      {"DepthwiseAlongMultiplier",
       BetweenSteps("layers { depthwise_conv1d { kernel_size: 2 depth_multiplier: 2 strides: 2 padding: SAME } }")},
      {"DepthwiseAlongCausal",
       BetweenSteps("layers { depthwise_conv1d { kernel_size: 2 dilation_rate: 2 padding: CAUSAL use_bias: false } }")},
      {"SeparableAlong", BetweenSteps("layers { separable_conv1d { filters: 3 kernel_size: 3 activation: TANH } }")},
      {"SeparableAlongMultiplier", BetweenSteps("layers { separable_conv1d { filters: 3 kernel_size: 3 strides: 2 "
                                                "depth_multiplier: 2 padding: SAME } }")},
      {"SeparableAlongCausal",
       BetweenSteps("layers { separable_conv1d { filters: 3 kernel_size: 3 padding: CAUSAL use_bias: false } }")},
      {"Transpose1D", BetweenSteps("layers { conv1d_transpose { filters: 3 kernel_size: 3 strides: 2 } }", "[4, 2]")},
      {"Transpose1DSame",
       BetweenSteps("layers { conv1d_transpose { filters: 3 kernel_size: 4 strides: 2 padding: SAME } }", "[4, 2]")},
      {"Transpose1DMore", BetweenSteps("layers { conv1d_transpose { filters: 3 kernel_size: 3 strides: 3 padding: SAME "
                                       "output_padding: 1 activation: TANH } }",
                                       "[4, 2]")},
      {"Transpose1DMoreValid",
       BetweenSteps("layers { conv1d_transpose { filters: 3 kernel_size: 2 strides: 3 output_padding: 2 } }",
                    "[4, 2]")},
      {"Transpose1DDilated",
       BetweenSteps("layers { conv1d_transpose { filters: 3 kernel_size: 3 dilation_rate: 2 } }", "[4, 2]")},
      {"TransposeMore",
       Between("layers { conv2d_transpose { filters: 2 kernel_size: [3, 4] strides: [2, 3] padding: SAME "
               "output_padding: [1, 0] } }",
               "[3, 2, 2]")},
      {"TransposeDilated",
       Between("layers { conv2d_transpose { filters: 2 kernel_size: 2 dilation_rate: [2, 3] padding: SAME } }",
               "[3, 4, 2]")},
      {"Conv3DValid", BetweenVolumes("layers { conv3d { filters: 2 kernel_size: [2, 3, 2] activation: RELU } }")},
      {"Conv3DSame", BetweenVolumes("layers { conv3d { filters: 2 kernel_size: [3, 2, 3] padding: SAME } }")},
      {"Conv3DStrides",
       BetweenVolumes(
           "layers { conv3d { filters: 2 kernel_size: 3 strides: [2, 1, 2] padding: SAME use_bias: false } }")},
      {"Conv3DUneven",
       BetweenVolumes("layers { conv3d { filters: 2 kernel_size: 3 strides: 2 padding: SAME activation: "
                      "TANH } }",
                      "[4, 4, 6, 1]")},
      {"Conv3DDilation", BetweenVolumes("layers { conv3d { filters: 2 kernel_size: 2 dilation_rate: [3, 2, 1] } }")},
      {"Conv3DGelu", BetweenVolumes("layers { conv3d { filters: 2 kernel_size: 2 activation: GELU } }")},
      {"Conv3DOfPlane",
       BetweenVolumes("layers { conv3d { filters: 2 kernel_size: [3, 1, 1] padding: SAME } }", "[1, 3, 3, 2]")},
      {"Conv3DFirst",
       "layers { input { shape: [3, 4, 4, 1] } } layers { conv3d { filters: 4 kernel_size: 2 } } "
       "layers { batch_normalization {} } layers { activation { activation: RELU } } layers { flatten {} } "
       "layers { dense { units: 3 activation: SOFTMAX } }"},
      {"VolumeLayers",
       BetweenVolumes(
           "layers { batch_normalization {} } layers { name: 'a' activation { activation: RELU } } layers { "
           "name: 'b' dense { units: 3 } } layers { inputs: ['a', 'b'] add {} } layers { name: 'c' dropout { "
           "rate: 0.3 } } layers { inputs: ['c', 'first'] concatenate {} } layers { layer_normalization {} } "
           "layers { reshape { target_shape: [4, 15, 6] } }")},
      {"MaxPooling3D", BetweenVolumes("layers { max_pooling3d { pool_size: [2, 1, 2] } }")},
      {"MaxPooling3DSame",
       BetweenVolumes("layers { max_pooling3d { pool_size: 3 strides: [1, 2, 2] padding: SAME } }")},
      {"AveragePooling3D", BetweenVolumes("layers { average_pooling3d { pool_size: [3, 2, 2] strides: 1 } }")},
      {"AveragePooling3DSame", BetweenVolumes("layers { average_pooling3d { pool_size: 2 padding: SAME } }")},
      {"Cropping3D", BetweenVolumes("layers { cropping3d { cropping: [1, 0, 0, 1, 2, 1] } }")},
      {"Cropping3DShared", BetweenVolumes("layers { name: 'c' inputs: 'first' cropping3d { cropping: [1, 0, 1] } } "
                                          "layers { name: 'd' inputs: 'first' max_pooling3d { pool_size: [3, 1, 3] "
                                          "strides: 1 } } layers { inputs: ['c', 'd'] add {} }")},
      {"ZeroPadding3D", BetweenVolumes("layers { zero_padding3d { padding: [1, 0, 0, 2, 1, 1] } } layers { conv3d { "
                                       "filters: 2 kernel_size: 2 } }",
                                       "[2, 2, 3, 2]")},
      {"UpSampling3D", BetweenVolumes("layers { up_sampling3d { size: [2, 1, 3] } }", "[2, 3, 2, 2]")},
      {"Transpose3D",
       BetweenVolumes("layers { conv3d_transpose { filters: 2 kernel_size: 2 strides: [2, 1, 2] } }", "[2, 3, 2, 2]")},
      {"Transpose3DSame",
       BetweenVolumes("layers { conv3d_transpose { filters: 2 kernel_size: 3 strides: 2 padding: SAME "
                      "activation: TANH } }",
                      "[2, 2, 3, 2]")},
      {"Transpose3DMore", BetweenVolumes("layers { conv3d_transpose { filters: 2 kernel_size: [1, 2, 3] strides: 2 "
                                         "output_padding: [0, 1, 1] use_bias: false } }",
                                         "[2, 3, 2, 2]")},
      {"Transpose3DDilated",
       BetweenVolumes("layers { conv3d_transpose { filters: 2 kernel_size: 2 dilation_rate: [1, 2, 2] } }",
                      "[2, 3, 2, 2]")},
  };
  for (LayerCase& c : ResampleCases()) cases.push_back(std::move(c));
  return cases;
}

// So many channels that backends lay them out in blocks and take several at a time.
inline std::vector<LayerCase> WideWindowCases() {
  return {
      {"WideGroups",
       Between("layers { conv2d { filters: 32 kernel_size: 1 } } layers { conv2d { filters: 64 kernel_size: "
               "3 groups: 2 activation: RELU padding: SAME } } layers { conv2d { filters: 32 kernel_size: "
               "3 groups: 32 strides: 2 } } layers { batch_normalization {} }")},
      {"WideGroupsOfSequence",
       BetweenSteps("layers { conv1d { filters: 32 kernel_size: 3 groups: 4 padding: CAUSAL } }", "[9, 2]", 16)},
      {"WideVolume",
       BetweenVolumes("layers { conv3d { filters: 32 kernel_size: 3 padding: SAME activation: RELU } } layers { "
                      "max_pooling3d {} } layers { conv3d { filters: 16 kernel_size: 2 groups: 2 } } layers { "
                      "batch_normalization {} } layers { activation { activation: RELU } }",
                      "[5, 6, 4, 2]", 16)},
      {"WideVolumeJoins",
       BetweenVolumes(
           "layers { name: 'a' conv3d { filters: 16 kernel_size: [1, 3, 1] padding: SAME } } layers { inputs: "
           "['first', 'a'] add {} } layers { name: 'b' average_pooling3d { pool_size: 3 strides: 2 padding: "
           "SAME } } layers { global_max_pooling3d {} }",
           "[5, 6, 4, 2]", 16)},
      {"VolumePlanesJoined", BetweenVolumes("layers { name: 'a' max_pooling3d { pool_size: [2, 1, 1] } } layers { "
                                            "inputs: ['first', 'a'] concatenate { axis: 1 } }")},
      {"VolumeRowsJoined", BetweenVolumes("layers { name: 'a' max_pooling3d { pool_size: [1, 2, 1] } } layers { "
                                          "inputs: ['a', 'first', 'a'] concatenate { axis: 2 } }")},
      {"VolumeColumnsJoined", BetweenVolumes("layers { name: 'a' max_pooling3d { pool_size: [1, 1, 2] } } layers { "
                                             "inputs: ['first', 'a'] concatenate { axis: -2 } }")},
      {"WideVolumeSizes",
       BetweenVolumes(
           "layers { zero_padding3d { padding: [1, 0, 0, 1, 2, 0] } } layers { cropping3d { cropping: [0, 1, 1, "
           "0, 0, 1] } } layers { up_sampling3d {} } layers { global_average_pooling3d { keepdims: true } }",
           "[3, 4, 4, 2]", 16)},
      {"WideVolumeTransposed",
       BetweenVolumes("layers { conv3d_transpose { filters: 16 kernel_size: 3 strides: 2 padding: SAME } } layers { "
                      "adaptive_average_pooling3d { output_size: 2 } }",
                      "[3, 2, 3, 2]", 16)},
      {"WideSizes",
       Between("layers { conv2d { filters: 16 kernel_size: 1 } } layers { resizing { height: 9 width: 4 } } "
               "layers { adaptive_max_pooling2d { output_size: [4, 3] } } layers { global_max_pooling2d {} }")},
  };
}

}  // namespace cairn
