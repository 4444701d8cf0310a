// Goal: operations of Keras that become several layers or give several outputs, and choices between numbers, come in as
// they mean and go out again; what does not fit is named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/unit/formats/keras_operation_text.h"
#include "tests/unit/model/model_text.h"
#include "worker/backend/reference/reference_net.h"

namespace cairn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A choice between numbers, and between numbers and what a layer gives.
TEST(KerasComposed, WhereTakesNumbers) {
  struct Case {
    std::string values, expected;
  };
  const std::string x = Tensor("image"), is = Numpy("Greater", "is", "", x + ", 0.5");
  const std::string list = R"({"class_name": "__numpy__", "config": {"value": [1, 2, 3, 4], "dtype": "float32"}})";
  for (const Case& c : std::vector<Case>{
           {x + ", 0.5", "constant: 0.5"},
           {"0.5, " + x, "constant: 0.5 constant_first: true"},
           {"1.0, 0", "constant: 1 constant_first: true other_constant: 0"},
           {"true, -2", "constant: 1 constant_first: true other_constant: -2"},
           {x + "," + list, "constant: [1, 2, 3, 4] constant_shape: 4"},
           {"0, " + list, "constant: 0 constant_first: true other_constant: [1, 2, 3, 4] other_shape: 4"},
           {list + ", [[7]]",
            "constant: [1, 2, 3, 4] constant_shape: 4 constant_first: true other_constant: 7 other_shape: [1, 1]"},
       }) {
    const Graph graph = ReadGraph(ModelOf("6, 4", {is, Numpy("Where", "y", "", Tensor("is") + "," + c.values)}, "y"));
    v1::Layer expected = FromText<v1::Layer>(absl::StrCat("name: 'y' operation { kind: WHERE ", c.expected, " }"));
    v1::Layer layer = graph.output().layer;
    layer.clear_inputs();
    EXPECT_EQ(layer.DebugString(), expected.DebugString()) << c.values;
    EXPECT_THAT(graph.output().output, ElementsAre(6, 4));
    ExpectRoundTrip(graph);
  }
}

// The numbers and their places are two layers; as Keras' format each is an output of an operation of its own.
TEST(KerasComposed, TopKGivesNumbersAndPlaces) {
  const std::string x = Tensor("image"), top = Node3("math", "TopK", "t", R"("k": 2, "sorted": true)", x);
  const Graph both = ReadGraph(ModelOf("6, 4", {top, Numpy("Add", "y", "", Tensor("t", 1) + "," + Tensor("t"))}, "y"));
  ASSERT_EQ(both.nodes().size(), 4u);
  EXPECT_FALSE(both.nodes()[1].layer.top_k().indices());
  EXPECT_TRUE(both.nodes()[2].layer.top_k().indices());
  EXPECT_THAT(both.output().inputs, ElementsAre(2, 1));
  EXPECT_THAT(both.output().output, ElementsAre(6, 2));
  ExpectRoundTrip(  // in the order in which they are taken
      ReadGraph(ModelOf("6, 4", {top, Numpy("Add", "y", "", Tensor("t") + "," + Tensor("t", 1))}, "y")));
  const Graph places = ReadGraph(ModelOf("6, 4", {top, Keras3Node("Flatten", "y", "", Tensor("t", 1))}, "y"));
  ASSERT_EQ(places.nodes().size(), 3u);
  EXPECT_TRUE(places.nodes()[1].layer.top_k().indices());
  ExpectRoundTrip(places);
  const Graph last =
      ReadGraph(absl::StrReplaceAll(ModelOf("6, 4", {top}, "t"), {{R"(["t", 0, 0])", R"(["t", 0, 1])"}}));
  EXPECT_TRUE(last.output().layer.top_k().indices());
  ExpectRoundTrip(last);
}

// Operations that become several layers, one behind the other.
TEST(KerasComposed, BecomeSeveralLayers) {
  struct Case {
    std::string shape, layer;
    std::vector<std::string> expected;
  };
  const std::string x = Tensor("image");
  for (const Case& c : std::vector<Case>{
           {"6, 4",
            Numpy("Average", "y", R"("axis": 1)", x, R"("weights": [1, 2, 1, 0, 0, 4])"),
            {"operation { kind: MULTIPLY constant: [0.125, 0.25, 0.125, 0, 0, 0.5] constant_shape: [6, 1] }",
             "reduce { kind: SUM axis: 1 }"}},
           {"6, 4",
            Numpy("Average", "y", R"("axis": -1)", x, R"("weights": [1, 1, 1, 1])"),
            {"operation { kind: MULTIPLY constant: [0.25, 0.25, 0.25, 0.25] constant_shape: 4 }",
             "reduce { kind: SUM axis: 2 }"}},
           {"4, 6, 8",
            Node3("nn", "DepthToSpace", "y", R"("block_size": 2, "data_format": "channels_last")", x),
            {"reshape { target_shape: [24, 2, 4] }", "permute { dims: [2, 1, 3] }",
             "reshape { target_shape: [2, 4, 24] }", "permute { dims: [2, 1, 3] }",
             "reshape { target_shape: [8, 12, 2] }"}},
           {"4, 6, 3",
            Node3("nn", "SpaceToDepth", "y", R"("block_size": 2)", x),
            {"reshape { target_shape: [4, 3, 6] }", "permute { dims: [2, 1, 3] }",
             "reshape { target_shape: [3, 2, 12] }", "permute { dims: [2, 1, 3] }",
             "reshape { target_shape: [2, 3, 12] }"}},
       }) {
    const Graph graph = ReadGraph(ModelOf(c.shape, {c.layer, Keras3Node("Flatten", "f", "", Tensor("y"))}, "f"));
    ASSERT_EQ(graph.nodes().size(), c.expected.size() + 2) << c.layer;
    for (size_t i = 0; i < c.expected.size(); ++i) {
      v1::Layer layer = graph.nodes()[i + 1].layer;
      layer.clear_inputs();
      const v1::Layer expected = FromText<v1::Layer>(absl::StrCat("name: '", layer.name(), "' ", c.expected[i]));
      EXPECT_EQ(layer.DebugString(), expected.DebugString()) << c.layer;
      EXPECT_EQ(graph.nodes()[i + 1].inputs, std::vector<int>{static_cast<int>(i)});
    }
    EXPECT_EQ(graph.nodes()[1].name, "y");
    ExpectRoundTrip(graph);
  }
}

// What these layers give, of one example.
std::vector<double> Computed(const std::string& shape, const std::string& layer, const std::vector<float>& x) {
  const auto graph = std::make_shared<const Graph>(
      ReadGraph(ModelOf(shape, {layer, Keras3Node("Flatten", "f", "", Tensor("y"))}, "f")));
  ExpectRoundTrip(*graph);
  Batch batch;
  batch.examples = 1;
  batch.inputs = Buffer::CopyOf(x.data(), x.size() * sizeof(float));
  ReferenceNet net(graph, FromText<v1::Loss>("kind: MEAN_SQUARED_ERROR"), {});
  return net.Predict(batch, {}).value();
}

std::vector<float> Numbered(int count) {
  std::vector<float> numbers;
  for (int i = 0; i < count; ++i) numbers.push_back(static_cast<float>(i));
  return numbers;
}

// TensorFlow's rule: out[h * b + i][w * b + j][c] = in[h][w][(i * b + j) * channels + c].
TEST(KerasComposed, BlocksMoveAsInTensorFlow) {
  const std::string x = Tensor("image");
  const std::vector<double> out =
      Computed("2, 3, 8", Node3("nn", "DepthToSpace", "y", R"("block_size": 2)", x), Numbered(48));
  const std::vector<double> back = Computed("4, 6, 2", Node3("nn", "SpaceToDepth", "y", R"("block_size": 2)", x),
                                            std::vector<float>(out.begin(), out.end()));
  for (int h = 0; h < 2; ++h) {
    for (int w = 0; w < 3; ++w) {
      for (int k = 0; k < 8; ++k) {
        const int i = k / 4, j = k / 2 % 2, c = k % 2;
        const double number = (h * 3 + w) * 8 + k;
        EXPECT_EQ(out[static_cast<size_t>(((h * 2 + i) * 6 + w * 2 + j) * 2 + c)], number);
        EXPECT_EQ(back[static_cast<size_t>((h * 3 + w) * 8 + k)], number);
      }
    }
  }
}

TEST(KerasComposed, ComputeWhatNumpyDoes) {
  const std::string x = Tensor("image");
  struct Case {
    std::string layer;
    std::vector<double> expected;
  };
  const std::vector<float> rows = {3, 1, 2, 9, 7, 8};  // [2, 3]
  for (const Case& c : std::vector<Case>{
           {Numpy("Sort", "y", R"("axis": -1)", x), {1, 2, 3, 7, 8, 9}},
           {Numpy("Sort", "y", R"("axis": 1)", x), {3, 1, 2, 9, 7, 8}},
           {Numpy("Argsort", "y", R"("axis": 2)", x), {1, 2, 0, 1, 2, 0}},
           {Numpy("Argsort", "y", R"("axis": 1)", x), {0, 0, 0, 1, 1, 1}},
           {Numpy("Median", "y", R"("axis": -1, "keepdims": false)", x), {2, 8}},
           {Numpy("Median", "y", R"("axis": 1, "keepdims": true)", x), {6, 4, 5}},
           {Numpy("Average", "y", R"("axis": -1)", x, R"("weights": [1, 0, 3])"), {2.25, 8.25}},
           {Node3("nn", "MultiHot", "y", R"("num_classes": 10, "axis": -1, "dtype": null, "sparse": false)",
                  Tensor("image")),
            {0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0}},
           {Numpy("Hstack", "y", "", "[" + x + "," + x + "]"), {3, 1, 2, 9, 7, 8, 3, 1, 2, 9, 7, 8}},
           {Node3("math", "TopK", "y", R"("k": 2, "sorted": true)", x), {3, 2, 9, 8}},
       }) {
    EXPECT_EQ(Computed("2, 3", c.layer, rows), c.expected) << c.layer;
  }
  EXPECT_EQ(Computed("2, 3", Numpy("Sort", "y", R"("axis": 1)", x), {3, 7, 8, 9, 1, 2}),
            (std::vector<double>{3, 1, 2, 9, 7, 8}));
  EXPECT_EQ(Computed("4", Numpy("Argsort", "y", R"("axis": -1)", x), {2, 1, 2, 1}), (std::vector<double>{1, 3, 0, 2}))
      << "equal numbers keep their order";
}

TEST(KerasComposed, RefuseAxesThatAreNotOne) {
  const std::string x = Tensor("image");
  EXPECT_THAT(ErrorOf(ModelOf("6, 4", {Numpy("Sort", "y", R"("axis": null)", x)}, "y")),
              HasSubstr("axis is missing: it would run over the batch too"));
  EXPECT_THAT(ErrorOf(ModelOf("6, 4", {Numpy("Median", "y", R"("axis": [1, 2])", x)}, "y")),
              HasSubstr("axis has several numbers; use one"));
  EXPECT_THAT(ErrorOf(ModelOf("6, 4, 2, 2", {Numpy("Sort", "y", R"("axis": 1)", x)}, "y")),
              HasSubstr("only the last one is supported, -1"));
  EXPECT_THAT(ErrorOf(ModelOf("6, 4", {Node3("nn", "MultiHot", "y", R"("num_classes": 3, "axis": 1)", x)}, "y")),
              HasSubstr("axis: only the last one is supported, -1"));
}

TEST(KerasComposed, RefuseBlocksThatDoNotFit) {
  const auto error = [](const std::string& type, const std::string& config) {
    return ErrorOf(ModelOf("4, 6, 6", {Node3("nn", type, "y", config, Tensor("image"))}, "y"));
  };
  EXPECT_THAT(error("DepthToSpace", R"("block_size": 2)"),
              HasSubstr("layer \"y\" (DepthToSpace): block_size 2: its 6 channels are no multiple of 4"));
  EXPECT_THAT(error("SpaceToDepth", R"("block_size": 4)"),
              HasSubstr("block_size 4: the height and the width of its input [4,6,6] are no multiples of it"));
  EXPECT_THAT(error("SpaceToDepth", R"("block_size": 0)"), HasSubstr("block_size is not one positive number"));
  EXPECT_THAT(error("SpaceToDepth", ""), HasSubstr("block_size is missing"));
  EXPECT_THAT(error("SpaceToDepth", R"("block_size": 2, "data_format": "channels_first")"),
              HasSubstr("data_format: \"channels_first\" is not supported; build the model with channels_last"));
}

}  // namespace
}  // namespace cairn
