// Goal: operations that move numbers or join tensors come in from both dialects of Keras as they mean, several outputs
// of one operation too, and go out again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/unit/formats/keras_operation_text.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(KerasMoves, AreReadFromKeras3) {
  struct Case {
    std::string layer, expected;
  };
  const std::string x = Tensor("image");
  for (const Case& c : std::vector<Case>{
           {Numpy("Stack", "y", R"("axis": 2)", "[" + x + "," + x + "]"), "stack { axis: 2 }"},
           {Numpy("Stack", "y", R"("axis": -1)", "[" + x + "," + x + "]"), "stack { axis: 3 }"},
           {Numpy("Pad", "y", R"("pad_width": [[0, 0], [1, 2], [0, 3]], "mode": "constant")", x,
                  R"("constant_values": 0.5)"),
            "pad { mode: CONSTANT before: [1, 0] after: [2, 3] constant_value: 0.5 }"},
           {Numpy("Pad", "y", R"("pad_width": [[0, 0], [1, 2], [0, 3]], "mode": "reflect")", x,
                  R"("constant_values": null)"),
            "pad { mode: REFLECT before: [1, 0] after: [2, 3] }"},
           {Numpy("Tile", "y", R"("repeats": [1, 2, 3])", x), "tile { repeats: [2, 3] }"},
           {Numpy("Tile", "y", R"("repeats": [3])", x), "tile { repeats: [1, 3] }"},
           {Numpy("Tile", "y", R"("repeats": 2)", x), "tile { repeats: [1, 2] }"},
           {Numpy("Take", "y", R"("axis": 1)", x + ", [3, -1]"), "take { axis: 1 indices: [3, -1] indices_shape: 2 }"},
           {Numpy("Take", "y", R"("axis": -1)",
                  x + R"(, {"class_name": "__numpy__", "config": {"value": [[1], [0]], "dtype": "int32"}})"),
            "take { axis: 2 indices: [1, 0] indices_shape: [2, 1] }"},
           {Numpy("Take", "y", R"("axis": 1)", x + ", 3"), "slice { axes { begin: 3 drop: true } axes {} }"},
           {Numpy("Repeat", "y", R"("repeats": 2, "axis": 2)", x),
            "take { axis: 2 indices: [0, 0, 1, 1, 2, 2, 3, 3] indices_shape: 8 }"},
           {Numpy("Repeat", "y", R"("repeats": [1, 0, 2, 1], "axis": -1)", x),
            "take { axis: 2 indices: [0, 2, 2, 3] indices_shape: 4 }"},
           {Numpy("Roll", "y", R"("shift": 1, "axis": 2)", x),
            "take { axis: 2 indices: [3, 0, 1, 2] indices_shape: 4 }"},
           {Numpy("Roll", "y", R"("shift": -6, "axis": 2)", x),
            "take { axis: 2 indices: [2, 3, 0, 1] indices_shape: 4 }"},
           {Node3("nn", "OneHot", "y", R"("num_classes": 3, "axis": -1, "dtype": "float32", "sparse": false)", x),
            "one_hot { num_classes: 3 axis: 3 }"},
           {Numpy("Einsum", "y", R"("subscripts": "bij,bkj->bik")", x + "," + x),
            "einsum { equation: 'bij,bkj->bik' }"},
           {Numpy("ExpandDims", "y", R"("axis": [1, -1])", x), "reshape { target_shape: [1, 6, 4, 1] }"},
           {Node3("core", "Cast", "y", R"("dtype": "int32")", x), "operation { kind: TRUNC }"},
           {Node3("core", "ConvertToTensor", "y", R"("dtype": null, "sparse": null)", x), "operation { kind: CAST }"},
           {Numpy("Fabs", "y", "", x), "operation { kind: ABSOLUTE }"},
           {Numpy("Real", "y", "", x), "operation { kind: CAST }"},
           {Numpy("Conjugate", "y", "", x), "operation { kind: CAST }"},
           {Numpy("Imag", "y", "", x), "operation { kind: FULL_LIKE constant: 0 }"},
           {Numpy("ZerosLike", "y", "", x, R"("dtype": null)"), "operation { kind: FULL_LIKE constant: 0 }"},
           {Numpy("OnesLike", "y", "", x, R"("dtype": "int32")"), "operation { kind: FULL_LIKE constant: 1 }"},
           {Numpy("FullLike", "y", "", x + ", -2.5", R"("dtype": null)"),
            "operation { kind: FULL_LIKE constant: -2.5 }"},
           {Numpy("NanToNum", "y", R"("nan": 0.5, "posinf": 9.0, "neginf": null)", x),
            "operation { kind: NAN_TO_NUM nan: 0.5 high: 9 low: -3.40282347e+38 }"},
           {Numpy("NanToNum", "y", "", x),
            "operation { kind: NAN_TO_NUM nan: 0 high: 3.40282347e+38 low: -3.40282347e+38 }"},
           {Node3("math", "TopK", "y", R"("k": 3, "sorted": true)", x), "top_k { k: 3 }"},
           {Node3("math", "TopK", "y", R"("k": 1, "sorted": false)", x), "top_k { k: 1 }"},
           {Numpy("Average", "y", R"("axis": [1, 2])", x, R"("weights": null)"), "reduce { kind: MEAN axis: [1, 2] }"},
           {Node3("core", "Cast", "y", R"("dtype": "bool")", x), "operation { kind: NOT_EQUAL constant: 0 }"},
           {Node3("linalg", "Norm", "y", R"("ord": 1, "axis": 1, "keepdims": false)", x),
            "reduce { kind: L1_NORM axis: 1 }"},
           {Node3("nn", "Gelu", "y", R"("approximate": true)", x), "activation { activation: GELU_TANH }"},
           {Node3("nn", "Gelu", "y", "", x), "activation { activation: GELU_TANH }"},
           {Node3("nn", "Glu", "y", R"("axis": -1)", x), "activation { activation: GLU }"},
           {Node3("nn", "Sparsemax", "y", R"("axis": -1)", x), "activation { activation: SPARSEMAX }"},
       }) {
    const Graph graph = ReadGraph(ModelOf("6, 4", {c.layer}, "y"));
    v1::Layer expected = FromText<v1::Layer>(absl::StrCat("name: 'y' ", c.expected)), layer = graph.output().layer;
    layer.clear_inputs();
    EXPECT_EQ(layer.DebugString(), expected.DebugString()) << c.layer;
    ExpectRoundTrip(graph);
  }
}

// Of several outputs only those that the model takes become layers.
TEST(KerasMoves, EachOutputThatIsTakenIsAPart) {
  const std::string x = Tensor("image");
  const Graph graph = ReadGraph(ModelOf("6, 4",
                                        {Numpy("Split", "s", R"("indices_or_sections": 3, "axis": 1)", x),
                                         Numpy("Add", "y", "", Tensor("s", 2) + "," + Tensor("s"))},
                                        "y"));
  ASSERT_EQ(graph.nodes().size(), 4u);
  EXPECT_EQ(graph.nodes()[1].layer.slice().axes(0).begin(), 0);
  EXPECT_EQ(graph.nodes()[1].layer.slice().axes(0).end(), 2);
  EXPECT_EQ(graph.nodes()[2].layer.slice().axes(0).begin(), 4);
  EXPECT_EQ(graph.nodes()[2].layer.slice().axes(0).end(), 6);
  EXPECT_THAT(graph.output().inputs, ElementsAre(2, 1));
  EXPECT_THAT(graph.output().output, ElementsAre(2, 4));
  ExpectRoundTrip(ReadGraph(ModelOf("6, 4",
                                    {Numpy("Split", "s", R"("indices_or_sections": 3, "axis": 1)", x),
                                     Numpy("Add", "y", "", Tensor("s") + "," + Tensor("s", 2))},
                                    "y")));

  const auto part = [&](const std::string& split, int output) {
    return ReadGraph(ModelOf("6, 4", {split, Keras3Node("Flatten", "y", "", Tensor("s", output))}, "y")).nodes()[1];
  };
  const std::string list = Numpy("Split", "s", R"("indices_or_sections": [1, 5], "axis": -2)", x);
  EXPECT_THAT(part(list, 0).output, ElementsAre(1, 4));
  EXPECT_THAT(part(list, 1).output, ElementsAre(4, 4));
  EXPECT_EQ(part(list, 1).layer.slice().axes(0).begin(), 1);
  const std::string uneven = Numpy("ArraySplit", "s", R"("indices_or_sections": 4, "axis": 1)", x);
  EXPECT_THAT(part(uneven, 1).output, ElementsAre(2, 4));
  EXPECT_THAT(part(uneven, 3).output, ElementsAre(1, 4));
  const std::string unstack = Node3("core", "Unstack", "s", R"("num": null, "axis": 2)", x);
  EXPECT_THAT(part(unstack, 3).output, ElementsAre(6));
  EXPECT_EQ(part(unstack, 3).layer.slice().axes(1).begin(), 3);

  EXPECT_THAT(ErrorOf(ModelOf("6, 4", {list, Keras3Node("Flatten", "y", "", Tensor("s", 3))}, "y")),
              HasSubstr("indices_or_sections: [1,5] does not split an axis of 6"));
  EXPECT_THAT(ErrorOf(ModelOf("6, 4",
                              {Numpy("Split", "s", R"("indices_or_sections": 4, "axis": 1)", x),
                               Keras3Node("Flatten", "y", "", Tensor("s"))},
                              "y")),
              HasSubstr("layer \"s\" (Split): indices_or_sections: 4 does not split an axis of 6"));
}

TEST(KerasMoves, AreReadFromKeras2) {
  const auto read = [](const std::string& function, const std::string& inbound, int output = 0) {
    return ReadGraph(absl::StrCat(
                         R"({"class_name": "Functional", "config": {"name": "n", "layers": [
    {"class_name": "InputLayer", "config": {"batch_input_shape": [null, 6, 4], "name": "x"}, "name": "x", "inbound_nodes": []},
    {"class_name": "TFOpLambda", "config": {"name": "y", "trainable": true, "dtype": "float32", "function": ")",
                         function, R"("}, "name": "y", "inbound_nodes": [)", inbound, R"(]},
    {"class_name": "Flatten", "config": {"name": "f"}, "name": "f", "inbound_nodes": [[["y", 0, )",
                         output, R"(, {}]]]}], "input_layers": [["x", 0, 0]], "output_layers": [["f", 0, 0]]}})"))
        .nodes()[1]
        .layer;
  };
  EXPECT_EQ(read("stack", R"([["x", 0, 0, {"axis": 1}], ["x", 0, 0, {"axis": 1}]])").stack().axis(), 1);
  EXPECT_EQ(read("compat.v1.pad", R"(["x", 0, 0, {"paddings": [[0, 0], [1, 1], [2, 0]], "mode": "REFLECT"}])")
                .pad()
                .before(1),
            2);
  EXPECT_EQ(read("tile", R"(["x", 0, 0, {"multiples": [1, 2, 1]}])").tile().repeats(0), 2);
  EXPECT_EQ(read("gather", R"(["x", 0, 0, {"indices": [2, 0], "axis": 1}])").take().indices(0), 2);
  EXPECT_EQ(read("one_hot", R"(["x", 0, 0, {"depth": 7}])").one_hot().num_classes(), 7);
  EXPECT_EQ(read("math.top_k", R"(["x", 0, 0, {"k": 3, "sorted": true}])").top_k().k(), 3);
  EXPECT_TRUE(read("nn.top_k", R"(["x", 0, 0, {"k": 3}])", 1).top_k().indices());
  EXPECT_EQ(read("ones_like", R"(["x", 0, 0, {}])").operation().constant(0), 1);
  EXPECT_EQ(read("math.real", R"(["x", 0, 0, {}])").operation().kind(), v1::Operation::CAST);
  EXPECT_EQ(read("where", R"(["x", 0, 0, {"x": ["x", 0, 0], "y": 2.5}])").operation().constant(0), 2.5f);
  EXPECT_EQ(read("where", R"(["x", 0, 0, {"x": 1, "y": 2.5}])").operation().other_constant(0), 2.5f);
  EXPECT_EQ(read("cast", R"(["x", 0, 0, {"dtype": "float32"}])").operation().kind(), v1::Operation::CAST);
  // TensorFlow's list says how long the parts are.
  EXPECT_EQ(read("split", R"(["x", 0, 0, {"num_or_size_splits": [1, 5], "axis": 1}])", 1).slice().axes(0).end(), 6);
  EXPECT_EQ(read("unstack", R"(["x", 0, 0, {"axis": 2}])", 2).slice().axes(1).begin(), 2);
  EXPECT_EQ(read("nn.gelu", R"(["x", 0, 0, {"approximate": true}])").activation().activation(), v1::GELU_TANH);
}

TEST(KerasMoves, RefuseByNameWhatTheyDoNotHave) {
  struct Case {
    std::string layer, error;
  };
  const std::string x = Tensor("image");
  for (const Case& c : std::vector<Case>{
           {Numpy("Stack", "y", "", "[" + x + "," + x + "]"), "axis: 0 names the batch"},
           {Numpy("Stack", "y", R"("axis": 1)", "[" + x + "]"), "it stacks fewer than two tensors"},
           {Numpy("Pad", "y", R"("pad_width": [[1, 1]], "mode": "constant")", x), "pad_width: [[1,1]] has not two"},
           {Numpy("Pad", "y", R"("pad_width": [[0, 0], [0, 0], [0, 1]], "mode": "edge")", x),
            "mode: \"edge\" is not supported; use constant, reflect or symmetric"},
           {Numpy("Pad", "y", R"("pad_width": [[0, 0], [0, 0], [0, -1]])", x), "-1 is not a whole number in 0 .."},
           {Numpy("Tile", "y", R"("repeats": [2, 1, 1])", x), "does not leave the batch as it is"},
           {Numpy("Take", "y", R"("axis": 1)", x + ", 1.5"), "index 1.5 is not on an axis of 6"},
           {Numpy("Take", "y", R"("axis": 1)", x + "," + x), "its indices are not constant whole numbers"},
           {Numpy("Take", "y", R"("axis": 0)", "[1, 2]," + x), "it takes numbers of a constant; use an Embedding"},
           {Numpy("Take", "y", R"("axis": null)", x + ", 1"), "axis: 0 names the batch"},
           {Numpy("Repeat", "y", R"("repeats": [1, 2], "axis": 1)", x), "repeats has not one number for each place"},
           {Numpy("Roll", "y", R"("shift": [1, 2], "axis": 1)", x), "shift has several numbers"},
           {Numpy("Einsum", "y", R"("subscripts": "bij->bji")", x), "it is not of two tensors"},
           {Numpy("Einsum", "y", R"("subscripts": "bij,jk->bik")", x + ", [[1], [2], [3], [4]]"),
            "it is not of two tensors"},
           {Node3("nn", "OneHot", "y", R"("num_classes": 3, "sparse": true)", x), "sparse=true is not supported"},
           {Node3("nn", "Glu", "y", R"("axis": 1)", x), "axis: 1 is not supported; only the last axis is, -1"},
           {Node3("core", "Cast", "y", R"("dtype": "uint8")", x), "dtype: \"uint8\" is not supported"},
           {Node3("linalg", "Norm", "y", R"("ord": 1, "axis": [1, 2])", x), "nor 1 over several axes"},
           {Node3("math", "TopK", "y", R"("k": "all")", x), "k: \"all\" is not a whole number"},
           {Node3("math", "TopK", "y", "", x), "k is missing"},
           {Numpy("Where", "y", "", x + ", null, null"), "without two values it gives places"},
           {Numpy("Where", "y", "", "true, " + x + "," + x), "its condition is a constant"},
           {Numpy("Where", "y", "", x + ", \"a\", 1"), "\"a\" is neither a number nor a tensor"},
           {Numpy("FullLike", "y", "", x + "," + x), "its fill_value is not one number"},
           {Numpy("FullLike", "y", "", x + ", [1, 2, 3, 4]"), "its fill_value is not one number"},
           {Numpy("FullLike", "y", "", x + ", 0.5", R"("dtype": "int32")"), "dtype: \"int32\" does not hold 0.5"},
           {Numpy("NanToNum", "y", R"("nan": "none")", x), "nan: \"none\" is not a number; give one"},
           {Numpy("Average", "y", "", x), "axis is missing: it would average the batch too"},
           {Numpy("Average", "y", R"("axis": 1)", x, R"("weights": [1, 2])"), "one number for each place of one axis"},
           {Numpy("Average", "y", R"("axis": [1, 2])", x, R"("weights": [1, 2])"), "one number for each place"},
           {Numpy("Average", "y", R"("axis": 2)", x, R"("weights": [1, -1, 2, -2])"), "its weights add up to 0"},
           {Numpy("Average", "y", R"("axis": 1)", x, absl::StrCat(R"("weights": )", x)), "are not constant numbers"},
           {Node3("nn", "DepthToSpace", "y", R"("block_size": 2)", x),
            "its input [6,4] is not [height, width, channels]"},
       }) {
    EXPECT_THAT(ErrorOf(ModelOf("6, 4", {c.layer}, "y")), HasSubstr(c.error)) << c.layer;
  }
}

// An activation may be an object of Keras; its arguments count.
TEST(KerasMoves, AnActivationIsAnObjectToo) {
  const auto dense = [](const std::string& activation) {
    return Keras2Sequential(absl::StrCat(
        R"({"class_name": "Dense", "config": {"name": "d", "units": 2, "activation": )", activation, "}}"));
  };
  const auto object = [](const std::string& type, const std::string& config) {
    return absl::StrCat(R"({"module": "keras.layers", "class_name": ")", type, R"(", "config": {)", config, "}}");
  };
  const auto of = [&](const std::string& activation) { return ReadGraph(dense(activation)).output().activation; };
  EXPECT_EQ(of(object("Gelu", R"("approximate": true)")), v1::GELU_TANH);
  EXPECT_EQ(of(object("Gelu", R"("approximate": false)")), v1::GELU);
  EXPECT_EQ(of(object("LeakyReLU", R"("negative_slope": 0.2)")), v1::LEAKY_RELU);
  EXPECT_EQ(of(object("ReLU", R"("max_value": 6, "negative_slope": 0.0, "threshold": 0.0)")), v1::RELU6);
  EXPECT_EQ(of(object("Softmax", R"("axis": -1)")), v1::SOFTMAX);
  for (const auto& [type, config] :
       std::vector<std::pair<std::string, std::string>>{{"LeakyReLU", R"("name": "l")"},
                                                        {"LeakyReLU", R"("negative_slope": 0.3)"},
                                                        {"ReLU", R"("max_value": 3)"},
                                                        {"ReLU", R"("threshold": 1)"},
                                                        {"ELU", R"("alpha": 0.5)"},
                                                        {"Softmax", R"("axis": 1)"}}) {
    EXPECT_THAT(ErrorOf(dense(object(type, config))), HasSubstr("has arguments that only a layer of its own has"))
        << type << config;
  }
  ExpectRoundTrip(ReadGraph(dense(object("Gelu", R"("approximate": true)"))));
}

// Its class has another name in Keras than in public, after which its weights are called.
TEST(KerasMoves, GroupQueryAttentionIsCalledAsMultiHeadAttention) {
  const std::string config = R"("head_dim": 2, "num_query_heads": 4, "num_key_value_heads": 2, "use_gate": true,
      "sliding_window": 3, "flash_attention": null, "dropout": 0.0, "use_bias": true, "seed": 5)";
  for (const char* type : {"GroupQueryAttention", "GroupedQueryAttention"}) {
    const std::string json = ModelOf(
        "6, 4", {Keras3Node(type, "y", config, Tensor("image") + "," + Tensor("image"), R"("use_causal_mask": true)")},
        "y");
    const Graph graph = ReadGraph(json);
    const v1::GroupQueryAttention& layer = graph.output().layer.group_query_attention();
    EXPECT_EQ(layer.num_query_heads(), 4);
    EXPECT_EQ(layer.sliding_window(), 3);
    EXPECT_TRUE(layer.use_causal_mask());
    EXPECT_EQ(layer.seed(), 5u);
    ASSERT_EQ(graph.variables().size(), 10u);
    EXPECT_EQ(graph.variables()[4].name, "y/gate/kernel");
    EXPECT_THAT(graph.variables()[2].shape, ElementsAre(4, 2, 2));
    EXPECT_EQ(ReadKerasModel(json)->weight_paths[1], "layers/grouped_query_attention");
    ExpectRoundTrip(graph);
  }
}

}  // namespace
}  // namespace cairn
