// Goal: the layers beside the first cluster's get Keras' names, output shapes, variables and defaults, and bad fields
// are refused with the layer's and the field's name. The figures are Keras' own (model.summary(), compute_output_shape)
// or worked out by hand from its documentation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/model/graph.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

struct ShapeCase {
  std::string input, layer, name;
  Shape output;
  std::vector<std::pair<std::string, Shape>> variables;
};

std::vector<ShapeCase> ShapeCases() {
  return {
      {"[5]", "layer_normalization {}", "layer_normalization", {5}, {{"gamma", {5}}, {"beta", {5}}}},
      {"[7, 5]", "layer_normalization { center: false }", "layer_normalization", {7, 5}, {{"gamma", {5}}}},
      {"[4, 6, 64]", "group_normalization {}", "group_normalization", {4, 6, 64}, {{"gamma", {64}}, {"beta", {64}}}},
      {"[4, 6]", "group_normalization { groups: 3 scale: false }", "group_normalization", {4, 6}, {{"beta", {6}}}},
      {"[4, 6]", "group_normalization { groups: -1 }", "group_normalization", {4, 6}, {{"gamma", {6}}, {"beta", {6}}}},
      {"[9]", "embedding { input_dim: 100 output_dim: 8 }", "embedding", {9, 8}, {{"embeddings", {100, 8}}}},
      {"[2, 9]", "embedding { input_dim: 4 output_dim: 8 }", "embedding", {2, 9, 8}, {{"embeddings", {4, 8}}}},
      {"[9, 8]", "global_average_pooling1d {}", "global_average_pooling1d", {8}, {}},
      {"[9, 8]", "max_pooling1d {}", "max_pooling1d", {4, 8}, {}},
      {"[9, 8]", "max_pooling1d { padding: SAME }", "max_pooling1d", {5, 8}, {}},
      {"[9, 8]", "max_pooling1d { pool_size: 3 strides: 1 }", "max_pooling1d", {7, 8}, {}},
      {"[9, 8]", "average_pooling1d { pool_size: 4 }", "average_pooling1d", {2, 8}, {}},
      {"[9, 8]", "conv1d { filters: 5 kernel_size: 3 }", "conv1d", {7, 5}, {{"kernel", {3, 8, 5}}, {"bias", {5}}}},
      {"[9, 8]",
       "conv1d { filters: 5 kernel_size: 4 strides: 2 padding: SAME use_bias: false }",
       "conv1d",
       {5, 5},
       {{"kernel", {4, 8, 5}}}},
      {"[9, 8]",
       "conv1d { filters: 5 kernel_size: 3 dilation_rate: 4 }",
       "conv1d",
       {1, 5},
       {{"kernel", {3, 8, 5}}, {"bias", {5}}}},
      {"[8, 9, 3]",
       "separable_conv2d { filters: 6 kernel_size: 3 depth_multiplier: 2 }",
       "separable_conv2d",
       {6, 7, 6},
       {{"depthwise_kernel", {3, 3, 3, 2}}, {"pointwise_kernel", {1, 1, 6, 6}}, {"bias", {6}}}},
      {"[8, 9, 3]",
       "separable_conv2d { filters: 6 kernel_size: [3, 5] strides: 2 padding: SAME use_bias: false }",
       "separable_conv2d",
       {4, 5, 6},
       {{"depthwise_kernel", {3, 5, 3, 1}}, {"pointwise_kernel", {1, 1, 3, 6}}}},
      {"[4, 5, 3]",
       "conv2d_transpose { filters: 6 kernel_size: 3 strides: 2 padding: SAME }",
       "conv2d_transpose",
       {8, 10, 6},
       {{"kernel", {3, 3, 6, 3}}, {"bias", {6}}}},
      {"[4, 5, 3]",
       "conv2d_transpose { filters: 6 kernel_size: [3, 2] strides: [2, 1] }",
       "conv2d_transpose",
       {9, 6, 6},
       {{"kernel", {3, 2, 6, 3}}, {"bias", {6}}}},
      {"[4, 5, 3]",
       "conv2d_transpose { filters: 6 kernel_size: 1 strides: 3 use_bias: false }",
       "conv2d_transpose",
       {12, 15, 6},
       {{"kernel", {1, 1, 6, 3}}}},
      {"[4, 5, 3]", "up_sampling2d {}", "up_sampling2d", {8, 10, 3}, {}},
      {"[4, 5, 3]", "up_sampling2d { size: [1, 3] interpolation: BILINEAR }", "up_sampling2d", {4, 15, 3}, {}},
      {"[4, 5, 3]", "cropping2d {}", "cropping2d", {4, 5, 3}, {}},
      {"[4, 5, 3]", "cropping2d { cropping: 1 }", "cropping2d", {2, 3, 3}, {}},
      {"[4, 5, 3]", "cropping2d { cropping: [1, 2] }", "cropping2d", {2, 1, 3}, {}},
      {"[4, 5, 3]", "cropping2d { cropping: [3, 0, 1, 2] }", "cropping2d", {1, 2, 3}, {}},
      {"[4, 5, 3]", "prelu {}", "p_re_lu", {4, 5, 3}, {{"alpha", {4, 5, 3}}}},
      {"[4, 5, 3]", "prelu { shared_axes: [1, 2] }", "p_re_lu", {4, 5, 3}, {{"alpha", {1, 1, 3}}}},
      {"[6]", "prelu { shared_axes: 1 }", "p_re_lu", {6}, {{"alpha", {1}}}},
      {"[4, 5, 3]", "spatial_dropout2d { rate: 0.5 }", "spatial_dropout2d", {4, 5, 3}, {}},
      {"[4, 5, 3]", "reshape { target_shape: [20, 3] }", "reshape", {20, 3}, {}},
      {"[4, 5, 3]", "reshape { target_shape: [-1, 6] }", "reshape", {10, 6}, {}},
      {"[60]", "reshape { target_shape: [3, -1, 5] }", "reshape", {3, 4, 5}, {}},
      {"[4, 5, 3]", "reshape { target_shape: -1 }", "reshape", {60}, {}},
      {"[4, 5]", "permute { dims: [2, 1] }", "permute", {5, 4}, {}},
      {"[4, 5, 3]", "permute { dims: [3, 1, 2] }", "permute", {3, 4, 5}, {}},
      {"[4]", "permute { dims: 1 }", "permute", {4}, {}},
      {"[4, 5]", "inputs: ['input_layer', 'input_layer'] multiply {}", "multiply", {4, 5}, {}},
      {"[4, 5]", "inputs: ['input_layer', 'input_layer'] average {}", "average", {4, 5}, {}},
      {"[4, 5]", "inputs: ['input_layer', 'input_layer'] maximum {}", "maximum", {4, 5}, {}},
      {"[7, 12]",
       "inputs: ['input_layer', 'input_layer'] multi_head_attention { num_heads: 2 key_dim: 3 }",
       "multi_head_attention",
       {7, 12},
       {{"query/kernel", {12, 2, 3}},
        {"query/bias", {2, 3}},
        {"key/kernel", {12, 2, 3}},
        {"key/bias", {2, 3}},
        {"value/kernel", {12, 2, 3}},
        {"value/bias", {2, 3}},
        {"attention_output/kernel", {2, 3, 12}},
        {"attention_output/bias", {12}}}},
      {"[7, 12]",
       "inputs: ['input_layer', 'input_layer', 'input_layer'] multi_head_attention { num_heads: 2 key_dim: 3 "
       "value_dim: 5 use_bias: false }",
       "multi_head_attention",
       {7, 12},
       {{"query/kernel", {12, 2, 3}},
        {"key/kernel", {12, 2, 3}},
        {"value/kernel", {12, 2, 5}},
        {"attention_output/kernel", {2, 5, 12}}}},
  };
}

TEST(GraphLayers, NamesShapesAndVariablesAsKerasHasThem) {
  for (const ShapeCase& c : ShapeCases()) {
    SCOPED_TRACE(c.input + " " + c.layer);
    const auto graph =
        Graph::Build(FromText<v1::Model>("layers { input { shape: " + c.input + " } } layers { " + c.layer + " }"));
    ASSERT_TRUE(graph.ok()) << graph.status();
    EXPECT_EQ(graph->output().name, c.name);
    EXPECT_EQ(graph->output().output, c.output);
    ASSERT_EQ(graph->variables().size(), c.variables.size());
    for (size_t v = 0; v < c.variables.size(); ++v) {
      EXPECT_EQ(graph->variables()[v].name, c.name + "/" + c.variables[v].first);
      EXPECT_EQ(graph->variables()[v].shape, c.variables[v].second);
      EXPECT_EQ(graph->variables()[v].kind, VariableKind::kTrainable);
    }
  }
}

TEST(GraphLayers, PadsAsTensorFlowPlacesThem) {
  struct Case {
    std::string input, layer;
    int64_t begin, end;  // of the last axis of the window
  };
  const std::vector<Case> cases = {
      {"[9, 8]", "conv1d { filters: 5 kernel_size: 4 strides: 2 padding: SAME }", 1, 2},
      {"[8, 8]", "conv1d { filters: 5 kernel_size: 3 strides: 2 padding: SAME }", 0, 1},
      {"[8, 8]", "conv1d { filters: 5 kernel_size: 3 dilation_rate: 2 padding: SAME }", 2, 2},
      {"[7, 8]", "max_pooling1d { padding: SAME }", 0, 1},
      {"[7, 8]", "average_pooling1d { pool_size: 5 strides: 1 padding: SAME }", 2, 2},
      {"[4, 6, 3]", "conv2d_transpose { filters: 2 kernel_size: 4 strides: 2 padding: SAME }", 1, 1},
      {"[4, 6, 3]", "conv2d_transpose { filters: 2 kernel_size: 3 strides: 2 padding: SAME }", 0, 1},
      {"[4, 6, 3]", "conv2d_transpose { filters: 2 kernel_size: 3 strides: 2 }", 0, 0},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.input + " " + c.layer);
    const auto graph =
        Graph::Build(FromText<v1::Model>("layers { input { shape: " + c.input + " } } layers { " + c.layer + " }"));
    ASSERT_TRUE(graph.ok()) << graph.status();
    EXPECT_EQ(graph->output().window.pad_begin[1], c.begin);
    EXPECT_EQ(graph->output().window.pad_end[1], c.end);
  }
}

TEST(GraphLayers, MultiplyBroadcastsAsKerasDoes) {
  const std::string image = "layers { name: 'x' input { shape: [4, 5, 3] } } ";
  const auto shape_of = [&](const std::string& layers) {
    const auto graph = Graph::Build(FromText<v1::Model>(image + layers));
    EXPECT_TRUE(graph.ok()) << graph.status();
    return graph.ok() ? graph->output().output : Shape{};
  };
  const std::string squeeze = "layers { name: 's' global_average_pooling2d {} } ";
  EXPECT_EQ(shape_of(squeeze + "layers { inputs: ['x', 's'] multiply {} }"), (Shape{4, 5, 3}));
  EXPECT_EQ(shape_of(squeeze + "layers { name: 'r' reshape { target_shape: [1, 1, 3] } } "
                               "layers { inputs: ['r', 'x'] multiply {} }"),
            (Shape{4, 5, 3}));
  EXPECT_EQ(shape_of("layers { name: 'a' conv2d { filters: 1 kernel_size: [4, 1] } } "
                     "layers { inputs: ['x', 'a'] multiply {} }"),
            (Shape{4, 5, 3}));
}

TEST(GraphLayers, FansAndInitializersAsKerasHasThem) {
  const auto graph = Graph::Build(FromText<v1::Model>(R"(
    layers { input { shape: [6] } }
    layers { name: "e" embedding { input_dim: 10 output_dim: 4 } }
    layers { name: "c" conv1d { filters: 8 kernel_size: 3 padding: SAME } }
    layers { name: "m" inputs: ["c", "c"] multi_head_attention { num_heads: 2 key_dim: 3 } }
    layers { reshape { target_shape: [2, 3, 8] } }
    layers { name: "s" separable_conv2d { filters: 5 kernel_size: 1 depth_multiplier: 2 } }
    layers { name: "t" conv2d_transpose { filters: 7 kernel_size: [2, 3] } })"));
  ASSERT_TRUE(graph.ok()) << graph.status();
  const auto find = [&](const std::string& name) -> const Variable& {
    for (const Variable& v : graph->variables()) {
      if (v.name == name) return v;
    }
    ADD_FAILURE() << name;
    return graph->variables()[0];
  };
  const auto fans = [&](const std::string& name) { return std::pair(find(name).fan_in, find(name).fan_out); };
  EXPECT_EQ(find("e/embeddings").initializer.kind(), v1::Initializer::RANDOM_UNIFORM);
  EXPECT_EQ(fans("c/kernel"), std::pair(int64_t{12}, int64_t{24}));
  // keras.initializers.compute_fans takes the last two axes for in and out, here too.
  EXPECT_EQ(fans("m/query/kernel"), std::pair(int64_t{16}, int64_t{24}));
  EXPECT_EQ(fans("m/attention_output/kernel"), std::pair(int64_t{6}, int64_t{16}));
  EXPECT_EQ(fans("s/depthwise_kernel"), std::pair(int64_t{8}, int64_t{2}));
  EXPECT_EQ(fans("s/pointwise_kernel"), std::pair(int64_t{16}, int64_t{5}));
  EXPECT_EQ(fans("t/kernel"), std::pair(int64_t{42}, int64_t{30}));
  EXPECT_EQ(find("m/query/bias").initializer.kind(), v1::Initializer::ZEROS);
}

TEST(GraphLayers, DefaultsAreWrittenIntoTheLayer) {
  const auto graph = Graph::Build(FromText<v1::Model>(R"(
    layers { input { shape: [4, 4, 32] } }
    layers { group_normalization {} }
    layers { layer_normalization {} }
    layers { up_sampling2d {} }
    layers { activation { activation: ELU } }
    layers { conv2d_transpose { filters: 2 kernel_size: 3 activation: ELU } }
    layers { reshape { target_shape: [-1, 2] } }
    layers { average_pooling1d { pool_size: 3 } }
    layers { activation { activation: ELU alpha: 0.5 } })"));
  ASSERT_TRUE(graph.ok()) << graph.status();
  const std::vector<Node>& nodes = graph->nodes();
  EXPECT_EQ(nodes[1].layer.group_normalization().groups(), 32);
  EXPECT_EQ(nodes[1].layer.group_normalization().epsilon(), 0.001f);
  EXPECT_EQ(nodes[2].layer.layer_normalization().epsilon(), 0.001f);
  EXPECT_TRUE(nodes[2].layer.layer_normalization().center() && nodes[2].layer.layer_normalization().scale());
  EXPECT_EQ(nodes[3].layer.up_sampling2d().size(1), 2);
  EXPECT_EQ(nodes[4].alpha, 1.0f);
  EXPECT_EQ(nodes[5].alpha, 1.0f);
  EXPECT_EQ(nodes[5].layer.conv2d_transpose().strides_size(), 2);
  EXPECT_EQ(nodes[6].layer.reshape().target_shape(0), nodes[6].output[0]);
  EXPECT_EQ(nodes[7].layer.average_pooling1d().strides(), 3);
  EXPECT_EQ(nodes[8].alpha, 0.5f);
}

TEST(GraphLayers, BadFieldsAreRefused) {
  struct Case {
    std::string input, layer, message;
  };
  const std::string twice = "inputs: ['input_layer', 'input_layer'] ";
  const std::vector<Case> cases = {
      {"[4]", "layer_normalization { epsilon: 0 }", "layer \"layer_normalization\": epsilon 0 is not positive"},
      {"[4, 4, 6]", "group_normalization {}",
       "layer \"group_normalization\": groups 32 does not divide the 6 channels of its input; use a divisor of them"},
      {"[4, 4, 6]", "group_normalization { groups: 0 }", "groups 0 is not positive"},
      {"[4, 4, 6]", "group_normalization { groups: 2 epsilon: -1 }", "epsilon -1 is not positive"},
      {"[4]", "embedding { output_dim: 4 }", "layer \"embedding\": input_dim 0 is not positive"},
      {"[4]", "embedding { input_dim: 4 }", "output_dim 0 is not positive"},
      {"[4]", "embedding { input_dim: 2000000000 output_dim: 1 }", "input_dim 2000000000 is too large"},
      {"[4, 4, 1]", "embedding { input_dim: 4 output_dim: 4 }", "its input is [4,4,1]; it needs ids as [steps]"},
      {"[4]", "global_average_pooling1d {}",
       "layer \"global_average_pooling1d\": its input is [4]; it needs [steps, features], so place it after an "
       "Embedding or a Reshape"},
      {"[4, 4, 1]", "max_pooling1d {}", "its input is [4,4,1]; it needs [steps, features]"},
      {"[4, 2]", "max_pooling1d { pool_size: 5 }", "pool of 5 steps is larger than its input [4,2]"},
      {"[4, 2]", "average_pooling1d { strides: -1 }", "strides -1 is not positive"},
      {"[4, 2]", "conv1d { filters: 2 }", "layer \"conv1d\": kernel_size is missing; give a number such as 3"},
      {"[4, 2]", "conv1d { kernel_size: 2 }", "filters 0 is not positive"},
      {"[4, 2]", "conv1d { filters: 2 kernel_size: 3 dilation_rate: 2 }", "kernel of 5 steps (dilated) is larger"},
      {"[4, 2]", "conv1d { filters: 2 kernel_size: 2 strides: 2 dilation_rate: 2 }", "are both above 1"},
      {"[4]", "conv1d { filters: 2 kernel_size: 2 }", "its input is [4]; it needs [steps, features]"},
      {"[4, 4, 2]", "separable_conv2d { kernel_size: 3 }", "layer \"separable_conv2d\": filters 0 is not positive"},
      {"[4, 4, 2]", "separable_conv2d { filters: 2 kernel_size: 3 depth_multiplier: -2 }", "depth_multiplier -2 is"},
      {"[4, 4, 2]", "separable_conv2d { filters: 2 kernel_size: 3 pointwise_initializer { kind: ONES value: 3 } }",
       "pointwise_initializer.value is only for kind CONSTANT; set that kind"},
      {"[4, 4, 2]", "conv2d_transpose { filters: 2 }", "layer \"conv2d_transpose\": kernel_size is missing"},
      {"[4, 4, 2]", "conv2d_transpose { filters: 2 kernel_size: 3 strides: [1, 0] }", "strides 0 is not positive"},
      {"[4, 2]", "conv2d_transpose { filters: 2 kernel_size: 3 }", "it needs [height, width, channels]"},
      {"[4, 4, 2]", "up_sampling2d { size: [2, -2] }", "layer \"up_sampling2d\": size -2 is not positive"},
      {"[4000, 4000, 2]", "up_sampling2d { size: 1000000 }", "has too many numbers"},
      {"[4, 2]", "up_sampling2d {}", "it needs [height, width, channels]"},
      {"[4, 2]", "cropping2d {}", "it needs [height, width, channels]"},
      {"[4, 4, 2]", "cropping2d { cropping: -1 }", "layer \"cropping2d\": cropping -1 is outside 0 .. "},
      {"[4, 4, 2]", "cropping2d { cropping: [1, 2, 3] }", "cropping has 3 numbers; give one, two (height, width)"},
      {"[4, 4, 2]", "cropping2d { cropping: [0, 0, 3, 1] }", "cropping 3 and 1 leave nothing of the 4 columns"},
      {"[4, 2]", "prelu { shared_axes: 3 }", "shared_axes names axis 3 of its input [4,2]; use 1 .. 2"},
      {"[4, 2]", "prelu { shared_axes: 0 }", "shared_axes names axis 0"},
      {"[4, 2]", "prelu { shared_axes: [1, 1] }", "shared_axes names axis 1 twice"},
      {"[4, 2]", "prelu { alpha_regularizer { l1: -1 } }", "alpha_regularizer"},
      {"[4, 4, 2]", "spatial_dropout2d { rate: 1 }", "layer \"spatial_dropout2d\": rate 1 is outside [0, 1)"},
      {"[4]", "spatial_dropout2d { rate: 0.5 }", "it needs [height, width, channels]"},
      {"[4, 4]", "reshape {}", "layer \"reshape\": target_shape is missing"},
      {"[4, 4]", "reshape { target_shape: [3, 5] }", "target_shape [3,5] does not fit its input [4,4] of 16 numbers"},
      {"[4, 4]", "reshape { target_shape: [-1, 5] }", "target_shape [-1,5] does not fit its input [4,4]"},
      {"[4, 4]", "reshape { target_shape: [-1, -1] }", "target_shape has more than one -1"},
      {"[4, 4]", "reshape { target_shape: [0, 16] }", "target_shape 0 is not positive"},
      {"[4, 4]", "reshape { target_shape: [2147483647, 2147483647, 2147483647] }", "does not fit its input"},
      {"[4, 4]", "reshape { target_shape: [2, 2, 2, 2, 1] }", "target_shape has 5 dimensions; at most 4 are supported"},
      {"[4, 4]", "permute {}", "layer \"permute\": dims [] is not an order of the axes 1 .. 2 of its input [4,4]"},
      {"[4, 4]", "permute { dims: [1, 1] }", "dims [1,1] is not an order of the axes"},
      {"[4, 4]", "permute { dims: [0, 1] }", "dims [0,1] is not an order of the axes"},
      {"[4, 4, 2]", "permute { dims: [2, 1] }",
       "dims [2,1] is not an order of the axes 1 .. 3 of its input [4,4,2]; "
       "name each once, such as [3,1,2]"},
      {"[4]", "multiply {}", "layer \"multiply\": a multiply joins two or more layers"},
      {"[4]", "average {}", "layer \"average\": an average joins two or more layers"},
      {"[4]", "maximum {}", "layer \"maximum\": a maximum joins two or more layers"},
      {"[4, 2]", "multi_head_attention { num_heads: 2 key_dim: 3 }",
       "layer \"multi_head_attention\": has 1 input, but a multi_head_attention takes a query, a value and, if it is "
       "not the value, a key; for self-attention name one layer twice"},
      {"[4]", twice + "multi_head_attention { num_heads: 2 key_dim: 3 }", "it needs [steps, features]"},
      {"[4, 2]", twice + "multi_head_attention { key_dim: 3 }", "num_heads 0 is not positive"},
      {"[4, 2]", twice + "multi_head_attention { num_heads: 3 }", "key_dim 0 is not positive"},
      {"[4, 2]", twice + "multi_head_attention { num_heads: 3 key_dim: 2 value_dim: -2 }", "value_dim -2 is not"},
      {"[4, 2]", twice + "multi_head_attention { num_heads: 3 key_dim: 2 dropout: 1 }", "dropout 1 is outside [0, 1)"},
      {"[4]", "activation { activation: RELU alpha: 1 }", "alpha is only for ELU, CELU and HARD_SIGMOID; leave it out"},
      {"[4]", "activation { activation: ELU alpha: -1 }", "alpha -1 is negative or not finite"},
      {"[4]", "activation { activation: ELU negative_slope: 1 }", "negative_slope is only for LEAKY_RELU"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.input + " " + c.layer);
    const auto graph =
        Graph::Build(FromText<v1::Model>("layers { input { shape: " + c.input + " } } layers { " + c.layer + " }"));
    ASSERT_FALSE(graph.ok());
    EXPECT_EQ(graph.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(graph.status().message()), testing::HasSubstr(c.message));
  }
}

TEST(GraphLayers, InputsThatDoNotFitTogetherAreRefused) {
  const std::string branches =
      "layers { name: 'x' input { shape: [4, 6] } } "
      "layers { name: 'a' conv1d { filters: 6 kernel_size: 2 } } "
      "layers { name: 'b' inputs: 'x' conv1d { filters: 4 kernel_size: 1 } } ";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"inputs: ['a', 'b'] multiply {}", "layer \"multiply\": its inputs [3,6] and [4,4] differ in an axis that is 1"},
      {"inputs: ['a', 'b'] maximum {}", "layer \"maximum\": its inputs have different shapes, [3,6] and [4,4]"},
      {"inputs: ['a', 'b'] average {}", "layer \"average\": its inputs have different shapes"},
      {"inputs: ['x', 'a', 'b'] multi_head_attention { num_heads: 1 key_dim: 1 }",
       "layer \"multi_head_attention\": its key [4,4] and value [3,6] differ in steps"},
      {"inputs: ['x', 'a', 'b', 'b'] multi_head_attention { num_heads: 1 key_dim: 1 }", "has 4 inputs, but a"},
  };
  for (const auto& [layer, message] : cases) {
    const auto graph = Graph::Build(FromText<v1::Model>(branches + "layers { " + layer + " }"));
    ASSERT_FALSE(graph.ok());
    EXPECT_THAT(std::string(graph.status().message()), testing::HasSubstr(message));
  }
}

Graph DotGraph(const std::string& first, const std::string& second, const std::string& dot, absl::Status* status) {
  const auto model = FromText<v1::Model>(absl::StrCat(
      "layers { name: 'x' input { shape: 60 } } layers { name: 'a' inputs: 'x' reshape { target_shape: ", first,
      " } } layers { name: 'b' inputs: 'x' reshape { target_shape: ", second, " } } layers { name: 'd' inputs: ['a', ",
      "'b'] ", dot, " }"));
  absl::StatusOr<Graph> graph = Graph::Build(model);
  *status = graph.status();
  return graph.ok() ? *std::move(graph) : Graph();
}

// keras.layers.Dot: the other axes of the first input, then those of the second.
TEST(GraphLayers, DotHasTheOtherAxesOfBoth) {
  const struct {
    const char *first, *second, *dot;
    Shape output;
  } cases[] = {
      {"[60]", "[60]", "dot { axes: 1 }", {1}},
      {"[12, 5]", "[12, 5]", "dot { axes: 2 }", {12, 12}},
      {"[12, 5]", "[12, 5]", "dot { axes: 1 }", {5, 5}},
      {"[12, 5]", "[5, 12]", "dot { axes: [2, 1] }", {12, 12}},
      {"[12, 5]", "[5, 12]", "dot { axes: [-2, -1] normalize: true }", {5, 5}},
      {"[60]", "[1, 60]", "dot { axes: [-1, -1] }", {1}},
      {"[3, 4, 5]", "[60, 1]", "dot { axes: [1, 2] }", {}},
  };
  for (const auto& c : cases) {
    absl::Status status;
    const Graph graph = DotGraph(c.first, c.second, c.dot, &status);
    if (c.output.empty()) {
      EXPECT_THAT(status.message(),
                  testing::HasSubstr("have 3 and 1 numbers along axes 1 and 2; name axes of one size"));
      continue;
    }
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(graph.output().output, c.output) << c.dot;
  }
}

TEST(GraphLayers, DotSaysWhatIsWrong) {
  const struct {
    const char *first, *dot, *error;
  } cases[] = {
      {"[12, 5]", "dot {}", "layer \"d\": axes has 0 numbers; give one for both inputs"},
      {"[12, 5]", "dot { axes: [1, 2, 1] }", "axes has 3 numbers"},
      {"[12, 5]", "dot { axes: 0 }", "axes: its input [12,5] has no axis 0; use 1 .. 2"},
      {"[12, 5]", "dot { axes: 3 }", "has no axis 3"},
      {"[12, 5]", "dot { axes: -3 }", "has no axis -3"},
      {"[12, 5]", "dot { axes: -2147483648 }", "has no axis -2147483648"},
      {"[12, 5]", "dot { axes: [1, 2] }", "have 12 and 5 numbers along axes 1 and 2; name axes of one size"},
      {"[3, 4, 5]", "dot { axes: 3 }", "its output [3,4,3,4] has 4 dimensions; at most 3 are supported"},
  };
  for (const auto& c : cases) {
    absl::Status status;
    DotGraph(c.first, c.first, c.dot, &status);
    EXPECT_THAT(status.message(), testing::HasSubstr(c.error));
  }
}

}  // namespace
}  // namespace cairn
