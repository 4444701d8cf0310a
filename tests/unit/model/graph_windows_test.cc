// Goal: layers with windows along sequences and over volumes, groups of channels, and global poolings get Keras' names,
// output shapes, variables and defaults, and bad fields are refused with the layer's and the field's name. The figures
// are Keras' own (compute_output_shape) or worked out by hand from its documentation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/model/graph.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

absl::StatusOr<Graph> BuildOne(const std::string& input, const std::string& layer) {
  return Graph::Build(
      FromText<v1::Model>(absl::StrCat("layers { input { shape: ", input, " } } layers { ", layer, " }")));
}

struct ShapeCase {
  std::string input, layer, name;
  Shape output;
  std::vector<Shape> variables;
};

const ShapeCase kShapes[] = {
    {"[8, 9, 4]", "conv2d { filters: 6 kernel_size: 3 groups: 2 }", "conv2d", {6, 7, 6}, {{3, 3, 2, 6}, {6}}},
    {"[9, 4]", "conv1d { filters: 8 kernel_size: 3 groups: 4 }", "conv1d", {7, 8}, {{3, 1, 8}, {8}}},
    {"[9, 4]",
     "conv1d { filters: 2 kernel_size: 3 padding: CAUSAL dilation_rate: 2 use_bias: false }",
     "conv1d",
     {9, 2},
     {{3, 4, 2}}},
    {"[9, 4]", "conv1d { filters: 2 kernel_size: 4 padding: CAUSAL strides: 2 }", "conv1d", {5, 2}, {{4, 4, 2}, {2}}},
    {"[2, 4]", "conv1d { filters: 2 kernel_size: 5 padding: CAUSAL }", "conv1d", {2, 2}, {{5, 4, 2}, {2}}},
    {"[9, 4]", "depthwise_conv1d { kernel_size: 3 depth_multiplier: 2 }", "depthwise_conv1d", {7, 8}, {{3, 4, 2}, {8}}},
    {"[9, 4]",
     "separable_conv1d { filters: 5 kernel_size: 3 depth_multiplier: 2 }",
     "separable_conv1d",
     {7, 5},
     {{3, 4, 2}, {1, 8, 5}, {5}}},
    {"[6, 8, 9, 4]",
     "conv3d { filters: 6 kernel_size: [2, 3, 1] strides: [1, 2, 3] }",
     "conv3d",
     {5, 3, 3, 6},
     {{2, 3, 1, 4, 6}, {6}}},
    {"[6, 8, 9, 4]",
     "conv3d { filters: 6 kernel_size: 3 padding: SAME strides: 2 groups: 2 }",
     "conv3d",
     {3, 4, 5, 6},
     {{3, 3, 3, 2, 6}, {6}}},
    {"[4, 3]",
     "conv1d_transpose { filters: 2 kernel_size: 3 strides: 2 }",
     "conv1d_transpose",
     {9, 2},
     {{3, 2, 3}, {2}}},
    // (input - 1) * strides, and 1 of an odd kernel, and the output_padding.
    {"[4, 3]",
     "conv1d_transpose { filters: 2 kernel_size: 3 strides: 2 padding: SAME output_padding: 0 }",
     "conv1d_transpose",
     {7, 2},
     {{3, 2, 3}, {2}}},
    {"[4, 3]",
     "conv1d_transpose { filters: 2 kernel_size: 4 strides: 2 padding: SAME output_padding: 1 }",
     "conv1d_transpose",
     {7, 2},
     {{4, 2, 3}, {2}}},
    {"[4, 5, 3]",
     "conv2d_transpose { filters: 2 kernel_size: 3 dilation_rate: 2 }",
     "conv2d_transpose",
     {8, 9, 2},
     {{3, 3, 2, 3}, {2}}},
    {"[2, 4, 5, 3]",
     "conv3d_transpose { filters: 2 kernel_size: [1, 2, 3] strides: [2, 1, 2] padding: SAME }",
     "conv3d_transpose",
     {4, 4, 10, 2},
     {{1, 2, 3, 2, 3}, {2}}},
    {"[6, 7, 8, 3]", "max_pooling3d {}", "max_pooling3d", {3, 3, 4, 3}, {}},
    {"[6, 7, 8, 3]", "max_pooling3d { padding: SAME strides: [1, 2, 3] }", "max_pooling3d", {6, 4, 3, 3}, {}},
    {"[6, 7, 8, 3]", "average_pooling3d { pool_size: [3, 1, 2] }", "average_pooling3d", {2, 7, 4, 3}, {}},
    {"[6, 3]", "global_max_pooling1d {}", "global_max_pooling1d", {3}, {}},
    {"[6, 7, 3]", "global_max_pooling2d { keepdims: true }", "global_max_pooling2d", {1, 1, 3}, {}},
    {"[6, 7, 8, 3]", "global_max_pooling3d {}", "global_max_pooling3d", {3}, {}},
    {"[6, 3]", "global_average_pooling1d { keepdims: true }", "global_average_pooling1d", {1, 3}, {}},
    {"[6, 7, 8, 3]", "global_average_pooling3d { keepdims: true }", "global_average_pooling3d", {1, 1, 1, 3}, {}},
    {"[6, 3]", "cropping1d {}", "cropping1d", {4, 3}, {}},
    {"[6, 3]", "cropping1d { cropping: [0, 5] }", "cropping1d", {1, 3}, {}},
    {"[6, 7, 8, 3]", "cropping3d {}", "cropping3d", {4, 5, 6, 3}, {}},
    {"[6, 7, 8, 3]", "cropping3d { cropping: [1, 2, 3] }", "cropping3d", {4, 3, 2, 3}, {}},
    {"[6, 7, 8, 3]", "cropping3d { cropping: [0, 1, 2, 0, 1, 1] }", "cropping3d", {5, 5, 6, 3}, {}},
    {"[6, 3]", "zero_padding1d {}", "zero_padding1d", {8, 3}, {}},
    {"[6, 3]", "zero_padding1d { padding: [2, 0] }", "zero_padding1d", {8, 3}, {}},
    {"[6, 7, 8, 3]", "zero_padding3d { padding: [1, 2, 3] }", "zero_padding3d", {8, 11, 14, 3}, {}},
    {"[6, 3]", "up_sampling1d {}", "up_sampling1d", {12, 3}, {}},
    {"[6, 7, 3]", "resizing { height: 9 width: 2 }", "resizing", {9, 2, 3}, {}},
    {"[6, 7, 3]", "center_crop { height: 9 width: 2 }", "center_crop", {9, 2, 3}, {}},
    {"[6, 3]", "adaptive_average_pooling1d { output_size: 4 }", "adaptive_average_pooling1d", {4, 3}, {}},
    {"[6, 7, 3]", "adaptive_max_pooling2d { output_size: [4, 9] }", "adaptive_max_pooling2d", {4, 9, 3}, {}},
    {"[6, 7, 8, 3]", "adaptive_max_pooling3d { output_size: 2 }", "adaptive_max_pooling3d", {2, 2, 2, 3}, {}},
    {"[6, 7, 8, 3]", "up_sampling3d { size: [1, 2, 3] }", "up_sampling3d", {6, 14, 24, 3}, {}},
};

TEST(GraphWindows, HaveKerasShapesAndVariables) {
  for (const ShapeCase& c : kShapes) {
    SCOPED_TRACE(c.layer);
    const absl::StatusOr<Graph> graph = BuildOne(c.input, c.layer);
    ASSERT_TRUE(graph.ok()) << graph.status();
    EXPECT_EQ(graph->output().name, c.name);
    EXPECT_EQ(graph->output().output, c.output);
    std::vector<Shape> variables;
    for (const Variable& v : graph->variables()) variables.push_back(v.shape);
    EXPECT_EQ(variables, c.variables);
  }
}

TEST(GraphWindows, BadFieldsAreNamed) {
  const struct {
    const char *input, *layer, *error;
  } cases[] = {
      {"[8, 8, 4]", "conv2d { filters: 6 kernel_size: 3 groups: 4 }", "groups 4 does not divide both the 4 channels"},
      {"[8, 8, 4]", "conv2d { filters: 6 kernel_size: 3 groups: 3 }", "groups 3 does not divide both the 4 channels"},
      {"[8, 8, 4]", "conv2d { filters: 6 kernel_size: 3 groups: 0 }", "groups 0 is not positive"},
      {"[8, 4]", "conv1d { filters: 6 kernel_size: 3 groups: -1 }", "groups -1 is not positive"},
      {"[8, 8, 4]", "conv2d { filters: 6 kernel_size: 3 padding: CAUSAL }", "padding CAUSAL is for convolutions along"},
      {"[8, 4]", "max_pooling1d { padding: CAUSAL }", "padding CAUSAL is for convolutions along"},
      {"[8, 8, 8, 4]", "conv3d { filters: 6 kernel_size: 3 padding: CAUSAL }", "padding CAUSAL"},
      {"[8, 8, 4]", "conv3d { filters: 6 kernel_size: 3 }", "it needs [depth, height, width, channels]"},
      {"[8, 8, 8, 4]", "conv2d { filters: 6 kernel_size: 3 }", "it needs [height, width, channels]"},
      {"[8, 8, 8, 4]", "conv3d { filters: 6 kernel_size: [3, 3] }", "kernel_size has 2 numbers; give one, or depth"},
      {"[8, 8, 8, 4]", "conv3d { filters: 6 }", "kernel_size is missing"},
      {"[8, 8, 8, 4]", "conv3d { filters: 6 kernel_size: [3, 0, 3] }", "kernel_size 0 is not positive"},
      {"[8, 8, 8, 4]", "conv3d { filters: 6 kernel_size: 9 }", "kernel of 9 along one axis is larger than its input"},
      {"[8, 8, 8, 4]", "conv3d { filters: 6 kernel_size: 3 strides: 2 dilation_rate: 2 }", "are both above 1"},
      {"[8, 4]", "depthwise_conv1d { kernel_size: [3, 3] }", "kernel_size has 2 numbers; give one"},
      {"[8, 4]", "depthwise_conv1d { kernel_size: 3 depth_multiplier: 0 }", "depth_multiplier 0 is not positive"},
      {"[8, 4]", "separable_conv1d { filters: 3 kernel_size: 9 }", "kernel of 9 steps is larger than its input [8,4]"},
      {"[8, 4]", "conv1d_transpose { filters: 3 kernel_size: 3 output_padding: 1 }", "output_padding 1 is not below"},
      {"[8, 4]", "conv1d_transpose { filters: 3 kernel_size: 3 output_padding: -1 }", "output_padding -1 is not below"},
      {"[8, 8, 4]", "conv2d_transpose { filters: 3 kernel_size: 3 strides: 2 output_padding: [1, 1, 1] }",
       "output_padding has 3 numbers"},
      {"[8, 8, 4]", "conv2d_transpose { filters: 3 kernel_size: 3 strides: 2 dilation_rate: 2 }", "are both above 1"},
      {"[1, 8, 4]", "conv2d_transpose { filters: 3 kernel_size: 2 padding: SAME output_padding: 0 }",
       "output_padding 0 leaves nothing"},
      {"[6, 3]", "cropping1d { cropping: 3 }", "cropping 3 and 3 leave nothing of the 6 steps"},
      {"[6, 7, 8, 3]", "cropping3d { cropping: [3, 1, 1] }", "leave nothing of the 6 planes"},
      {"[6, 7, 8, 3]", "cropping3d { cropping: [3, 1] }", "cropping has 2 numbers; give one, three"},
      {"[6, 3]", "zero_padding1d { padding: [1, 2, 3] }", "padding has 3 numbers; give one or two"},
      {"[6, 3]", "zero_padding1d { padding: -1 }", "padding -1 is outside 0 .."},
      {"[6, 7, 3]", "resizing { width: 2 }", "height 0 is not positive"},
      {"[6, 7, 3]", "resizing { height: 2 width: -2 }", "width -2 is not positive"},
      {"[6, 7, 3]", "resizing { height: 2 width: 2 fill_value: 1 }", "fill_value is only for pad_to_aspect_ratio"},
      {"[6, 7, 3]", "resizing { height: 2 width: 2 crop_to_aspect_ratio: true pad_to_aspect_ratio: true }",
       "crop_to_aspect_ratio and pad_to_aspect_ratio are both set"},
      {"[6, 3]", "resizing { height: 2 width: 2 }", "it needs [height, width, channels]"},
      {"[6, 7, 3]", "center_crop { height: 2 }", "width 0 is not positive"},
      {"[6, 7, 3]", "adaptive_max_pooling2d {}", "output_size is missing"},
      {"[6, 7, 3]", "adaptive_max_pooling2d { output_size: 0 }", "output_size 0 is not positive"},
      {"[6, 3]", "up_sampling1d { size: 0 }", "size 0 is not positive"},
      {"[6, 7, 8, 3]", "permute { dims: [4, 1, 2, 3] }", "has 4 axes; at most 3 can be permuted"},
  };
  for (const auto& c : cases) {
    const std::string error(BuildOne(c.input, c.layer).status().message());
    EXPECT_THAT(error, testing::HasSubstr(c.error)) << c.layer;
    EXPECT_THAT(error, testing::StartsWith("layer \"")) << c.layer;
  }
}

}  // namespace
}  // namespace cairn
