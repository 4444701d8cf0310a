// Goal: a good model becomes the graph that Keras would build: names, shapes, pads, parameter counts, fans, order of
// variables. The figures are Keras' own (model.summary()) or worked out by hand from its documentation.
#include "common/model/graph.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/base/limits.h"
#include "common/model/call_mode.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

Graph BuildText(const std::string& text) {
  absl::StatusOr<Graph> graph = Graph::Build(FromText<v1::Model>(text));
  EXPECT_TRUE(graph.ok()) << graph.status();
  return graph.ok() ? *std::move(graph) : Graph();
}

// One layer behind an input of [height, width, channels].
Graph OneLayer(const std::string& shape, const std::string& layer) {
  return BuildText("layers { input { shape: " + shape + " } } layers { " + layer + " }");
}

TEST(Graph, LayersThatAreNotNamedAsTrainableAreFrozen) {
  const Graph graph = BuildText(MnistConvnet() + " trainable_layers: [\"dense\", \"dropout\"]");
  EXPECT_EQ(graph.trainable_parameters(), 16010);
  for (const Node& node : graph.nodes()) {
    EXPECT_EQ(node.trainable, node.name == "dense" || node.name == "dropout") << node.name;
    EXPECT_EQ(node.layer.has_trainable(), !node.trainable) << node.name;
  }
}

TEST(Graph, MnistConvnetAsKerasSummarizesIt) {
  const Graph graph = BuildText(MnistConvnet());
  const std::vector<std::string> names = {"input_layer",     "rescaling", "conv2d",  "max_pooling2d", "conv2d_1",
                                          "max_pooling2d_1", "flatten",   "dropout", "dense"};
  const std::vector<Shape> shapes = {{28, 28, 1}, {28, 28, 1}, {26, 26, 32}, {13, 13, 32}, {11, 11, 64},
                                     {5, 5, 64},  {1600},      {1600},       {10}};
  ASSERT_EQ(graph.nodes().size(), names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(graph.nodes()[i].id, static_cast<int>(i));
    EXPECT_EQ(graph.nodes()[i].name, names[i]);
    EXPECT_EQ(graph.nodes()[i].layer.name(), names[i]);
    EXPECT_EQ(graph.nodes()[i].output, shapes[i]) << names[i];
  }
  EXPECT_EQ(graph.parameters(), 320 + 18496 + 16010);
  EXPECT_EQ(graph.parameters(), 34826);
  EXPECT_EQ(graph.trainable_parameters(), 34826);
  EXPECT_EQ(graph.input_shape(), (Shape{28, 28, 1}));
  EXPECT_EQ(graph.output().activation, v1::SOFTMAX);
}

TEST(Graph, VariablesStandAlignedInKerasOrder) {
  const Graph graph = BuildText(R"(
    layers { input { shape: [8, 8, 3] } }
    layers { conv2d { filters: 4 kernel_size: [3, 5] } }
    layers { batch_normalization { momentum: 0.9 } }
    layers { depthwise_conv2d { kernel_size: 3 depth_multiplier: 2 } }
    layers { global_average_pooling2d {} }
    layers { dense { units: 3 use_bias: false } })");
  const std::vector<std::string> names = {"conv2d/kernel",
                                          "conv2d/bias",
                                          "batch_normalization/gamma",
                                          "batch_normalization/beta",
                                          "batch_normalization/moving_mean",
                                          "batch_normalization/moving_variance",
                                          "depthwise_conv2d/kernel",
                                          "depthwise_conv2d/bias",
                                          "dense/kernel"};
  const std::vector<Shape> shapes = {{3, 5, 3, 4}, {4}, {4}, {4}, {4}, {4}, {3, 3, 4, 2}, {8}, {8, 3}};
  ASSERT_EQ(graph.variables().size(), names.size());
  int64_t end = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    const Variable& v = graph.variables()[i];
    EXPECT_EQ(v.name, names[i]);
    EXPECT_EQ(v.shape, shapes[i]) << v.name;
    EXPECT_EQ(v.size, NumElements(v.shape));
    EXPECT_EQ(v.offset % kSpaceAlignment, 0);
    EXPECT_GE(v.offset, end);
    EXPECT_LT(v.offset - end, kSpaceAlignment) << "no gap of a whole line";
    end = v.offset + v.size;
    const bool moving = i == 4 || i == 5;
    EXPECT_EQ(v.kind == VariableKind::kMovingAverage, moving) << v.name;
    EXPECT_EQ(v.momentum, moving ? 0.9f : 0.0f);
    EXPECT_NE(v.initializer.kind(), v1::Initializer::INITIALIZER_UNSPECIFIED);
    const std::vector<int>& own = graph.nodes()[v.node].variables;
    EXPECT_EQ(std::count(own.begin(), own.end(), static_cast<int>(i)), 1);
  }
  EXPECT_EQ(graph.space_size() % kSpaceAlignment, 0);
  EXPECT_GE(graph.space_size(), end);
  EXPECT_EQ(graph.parameters(), 180 + 4 + 16 + 72 + 8 + 24);
  EXPECT_EQ(graph.trainable_parameters(), graph.parameters() - 8);
}

TEST(Graph, FansAsKerasComputesThem) {
  const Graph graph = BuildText(R"(
    layers { input { shape: [8, 8, 3] } }
    layers { conv2d { filters: 4 kernel_size: [3, 5] } }
    layers { depthwise_conv2d { kernel_size: 3 depth_multiplier: 2 } }
    layers { flatten {} }
    layers { dense { units: 7 } })");
  const auto fans = [&](size_t v) { return std::pair(graph.variables()[v].fan_in, graph.variables()[v].fan_out); };
  EXPECT_EQ(fans(0), std::pair(int64_t{45}, int64_t{60}));  // 3*5*3, 3*5*4
  EXPECT_EQ(fans(1), std::pair(int64_t{4}, int64_t{4}));    // a bias
  EXPECT_EQ(fans(2), std::pair(int64_t{36}, int64_t{18}));  // 3*3*4, 3*3*2
  EXPECT_EQ(fans(4), std::pair(int64_t{64}, int64_t{7}));   // [4*2*8, 7]
}

struct WindowCase {
  std::string shape, layer;
  Shape output;
  std::array<int64_t, 4> pads;  // top, bottom, left, right
};

TEST(Graph, WindowsAsTensorFlowPlacesThem) {
  const std::vector<WindowCase> cases = {
      {"[5, 5, 1]", "conv2d { filters: 2 kernel_size: 3 padding: SAME }", {5, 5, 2}, {1, 1, 1, 1}},
      {"[5, 5, 1]", "conv2d { filters: 2 kernel_size: 3 strides: 2 padding: SAME }", {3, 3, 2}, {1, 1, 1, 1}},
      // The odd pixel goes to the bottom and right.
      {"[6, 6, 1]", "conv2d { filters: 2 kernel_size: 3 strides: 2 padding: SAME }", {3, 3, 2}, {0, 1, 0, 1}},
      {"[224, 224, 3]", "conv2d { filters: 64 kernel_size: 7 strides: 2 padding: SAME }", {112, 112, 64}, {2, 3, 2, 3}},
      {"[5, 8, 1]", "conv2d { filters: 2 kernel_size: [2, 4] padding: SAME }", {5, 8, 2}, {0, 1, 1, 2}},
      {"[7, 7, 1]", "conv2d { filters: 2 kernel_size: 3 dilation_rate: 2 }", {3, 3, 2}, {0, 0, 0, 0}},
      {"[7, 7, 1]", "conv2d { filters: 2 kernel_size: 3 dilation_rate: 2 padding: SAME }", {7, 7, 2}, {2, 2, 2, 2}},
      {"[7, 9, 1]", "conv2d { filters: 2 kernel_size: 3 strides: [2, 3] }", {3, 3, 2}, {0, 0, 0, 0}},
      {"[3, 3, 1]", "conv2d { filters: 2 kernel_size: 1 strides: 2 padding: SAME }", {2, 2, 2}, {0, 0, 0, 0}},
      {"[6, 6, 4]",
       "depthwise_conv2d { kernel_size: 3 strides: 2 padding: SAME depth_multiplier: 3 }",
       {3, 3, 12},
       {0, 1, 0, 1}},
      {"[7, 7, 2]", "max_pooling2d {}", {3, 3, 2}, {0, 0, 0, 0}},
      {"[7, 7, 2]", "max_pooling2d { padding: SAME }", {4, 4, 2}, {0, 1, 0, 1}},
      {"[7, 7, 2]", "average_pooling2d { pool_size: 3 strides: 1 padding: SAME }", {7, 7, 2}, {1, 1, 1, 1}},
      {"[2, 2, 2]", "average_pooling2d { pool_size: 5 padding: SAME }", {1, 1, 2}, {1, 2, 1, 2}},
      {"[5, 6, 2]", "zero_padding2d {}", {7, 8, 2}, {1, 1, 1, 1}},
      {"[5, 6, 2]", "zero_padding2d { padding: [2, 3] }", {9, 12, 2}, {2, 2, 3, 3}},
      {"[5, 6, 2]", "zero_padding2d { padding: [0, 1, 2, 3] }", {6, 11, 2}, {0, 1, 2, 3}},
  };
  for (const WindowCase& c : cases) {
    SCOPED_TRACE(c.shape + " " + c.layer);
    const Graph graph = OneLayer(c.shape, c.layer);
    ASSERT_EQ(graph.nodes().size(), 2u);
    const Node& node = graph.output();
    EXPECT_EQ(node.output, c.output);
    EXPECT_EQ((std::array<int64_t, 4>{node.window.pad_begin[0], node.window.pad_end[0], node.window.pad_begin[1],
                                      node.window.pad_end[1]}),
              c.pads);
  }
}

TEST(Graph, DefaultsAreWrittenIntoTheLayer) {
  const Graph graph = BuildText(R"(
    layers { input { shape: [6, 6, 1] } }
    layers { conv2d { filters: 2 kernel_size: 3 } }
    layers { batch_normalization {} }
    layers { activation { activation: LEAKY_RELU } }
    layers { average_pooling2d {} }
    layers { flatten {} }
    layers { dense { units: 2 activation: LEAKY_RELU } })");
  const v1::Conv2D& conv = graph.nodes()[1].layer.conv2d();
  EXPECT_EQ(conv.kernel_size_size(), 2);
  EXPECT_EQ(conv.strides(1), 1);
  EXPECT_EQ(conv.dilation_rate(0), 1);
  EXPECT_EQ(conv.padding(), v1::VALID);
  EXPECT_EQ(conv.activation(), v1::LINEAR);
  EXPECT_TRUE(conv.use_bias());
  EXPECT_EQ(conv.kernel_initializer().kind(), v1::Initializer::GLOROT_UNIFORM);
  EXPECT_EQ(conv.bias_initializer().kind(), v1::Initializer::ZEROS);
  EXPECT_EQ(graph.nodes()[1].layer.inputs(0), "input_layer");
  const v1::BatchNormalization& bn = graph.nodes()[2].layer.batch_normalization();
  EXPECT_EQ(bn.momentum(), 0.99f);
  EXPECT_EQ(bn.epsilon(), 0.001f);
  EXPECT_TRUE(bn.center() && bn.scale());
  EXPECT_EQ(graph.nodes()[3].negative_slope, 0.3f);  // keras.layers.LeakyReLU
  EXPECT_EQ(graph.nodes()[4].window.strides[0], 2);
  EXPECT_EQ(graph.nodes()[6].negative_slope, 0.2f);  // keras.activations.leaky_relu
}

TEST(Graph, BranchesByName) {
  const Graph graph = BuildText(R"(
    layers { name: "picture" input { shape: [4, 4, 3] } }
    layers { name: "left" conv2d { filters: 3 kernel_size: 1 } }
    layers { name: "right" inputs: "picture" conv2d { filters: 5 kernel_size: 1 } }
    layers { inputs: ["left", "picture"] add {} }
    layers { name: "both" inputs: ["add", "right", "left"] concatenate {} })");
  EXPECT_EQ(graph.nodes()[2].inputs, std::vector<int>{0});
  EXPECT_EQ(graph.nodes()[3].inputs, (std::vector<int>{1, 0}));
  EXPECT_EQ(graph.output().inputs, (std::vector<int>{3, 2, 1}));
  EXPECT_EQ(graph.output().output, (Shape{4, 4, 11}));
  EXPECT_EQ(graph.variables()[2].name, "right/kernel");
}

TEST(Graph, ANameGivenByTheUserIsLeftToThatLayer) {
  const Graph graph = BuildText(R"(
    layers { input { shape: [4] } }
    layers { dense { units: 3 } }
    layers { name: "dense_1" dense { units: 3 } }
    layers { dense { units: 3 } })");
  EXPECT_EQ(graph.nodes()[1].name, "dense");
  EXPECT_EQ(graph.nodes()[2].name, "dense_1");
  EXPECT_EQ(graph.nodes()[3].name, "dense_2");
}

TEST(Graph, DenseActsOnTheLastAxis) {
  const Graph graph = OneLayer("[4, 5, 6]", "dense { units: 7 }");
  EXPECT_EQ(graph.output().output, (Shape{4, 5, 7}));
  EXPECT_EQ(graph.variables()[0].shape, (Shape{6, 7}));
}

TEST(Graph, WhatIsNotTrainableIsFrozenWithItsMovingAverages) {
  const Graph graph = BuildText(R"(
    layers { input { shape: [8, 8, 3] } }
    layers { trainable: false conv2d { filters: 4 kernel_size: 3 } }
    layers { trainable: false batch_normalization {} }
    layers { trainable: true batch_normalization {} }
    layers { trainable: false flatten {} }
    layers { dense { units: 7 } })");
  for (const Variable& v : graph.variables()) {
    const bool moving = v.name.starts_with("batch_normalization_1/moving");
    EXPECT_EQ(v.kind, v.node < 3 ? VariableKind::kFrozen
                      : moving   ? VariableKind::kMovingAverage
                                 : VariableKind::kTrainable)
        << v.name;
  }
  EXPECT_FALSE(graph.nodes()[2].trainable);
  EXPECT_TRUE(graph.nodes()[3].trainable);
  EXPECT_EQ(graph.trainable_parameters(), 8 + 36 * 4 * 7 + 7);
  EXPECT_EQ(graph.parameters() - graph.trainable_parameters(), 112 + 16 + 8);
}

TEST(Graph, WhatIsComputedAsInInferenceIsTrainedButForItsMovingAverages) {
  const Graph graph = BuildText(R"(
    layers { input { shape: [8, 8, 3] } }
    layers { training: false conv2d { filters: 4 kernel_size: 3 } }
    layers { training: false batch_normalization {} }
    layers { trainable: false training: false batch_normalization {} })");
  for (const Variable& v : graph.variables()) {
    const bool frozen = v.node == 3 || v.name.starts_with("batch_normalization/moving");
    EXPECT_EQ(v.kind, frozen ? VariableKind::kFrozen : VariableKind::kTrainable) << v.name;
  }
  EXPECT_FALSE(InfersAlways(graph.nodes()[0]));
  EXPECT_TRUE(InfersAlways(graph.nodes()[2]));
}

// As Keras' call takes them.
TEST(Graph, AttentionTakesItsInputsByPlaceOrByName) {
  for (const char* inputs :
       {"'q', 'v', 'k'", "'q', 'v', 'key=k'", "'q', 'key=k', 'value=v'", "'key=k', 'query=q', 'value=v'"}) {
    const Graph graph =
        BuildText(absl::StrCat("layers { name: 'q' input { shape: [3, 4] } } layers { name: 'v' dense { units: 5 } } "
                               "layers { name: 'k' inputs: 'q' dense "
                               "{ units: 6 } } layers { inputs: [",
                               inputs, "] multi_head_attention { num_heads: 1 key_dim: 2 } }"));
    EXPECT_EQ(graph.output().inputs, (std::vector<int>{0, 1, 2})) << inputs;
  }
}

TEST(Graph, BatchNormalizationWithoutCenterAndScaleHasOnlyItsMovingAverages) {
  const Graph graph = OneLayer("[4, 4, 6]", "batch_normalization { center: false scale: false }");
  ASSERT_EQ(graph.variables().size(), 2u);
  EXPECT_EQ(graph.trainable_parameters(), 0);
  EXPECT_EQ(graph.variables()[1].initializer.kind(), v1::Initializer::ONES);
}

}  // namespace
}  // namespace cairn
