// Goal: what a Functional model of Keras can be comes in as it is and goes out again: operations on tensors in both
// dialects, layers that are called twice (alone and within a model that is called twice), several inputs and outputs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/formats/keras_archive.h"
#include "common/formats/keras_weights.h"
#include "tests/unit/formats/keras_reading.h"
#include "tests/unit/formats/keras_text.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string Operation(const std::string& module, const std::string& type, const std::string& name,
                      const std::string& config, const std::string& args, const std::string& kwargs = "") {
  return absl::StrCat(R"({"module": ")", module, R"(", "class_name": ")", type, R"(", "config": {"name": ")", name,
                      "\"", config.empty() ? "" : ", ", config, R"(}, "registered_name": ")", type, R"(", "name": ")",
                      name, R"(", "inbound_nodes": [{"args": [)", args, R"(], "kwargs": {)", kwargs, "}}]}");
}
std::string Numpy(const std::string& type, const std::string& name, const std::string& args,
                  const std::string& config = "") {
  return Operation("keras.src.ops.numpy", type, name, config, args);
}

std::string OfImage(const std::vector<std::string>& layers, const std::string& output) {
  return Keras3Functional(absl::StrCat(Keras3Input("image", "[null, 8, 8, 3]"), ",", absl::StrJoin(layers, ",")),
                          output);
}

// Written and read again, the graph is the same, but for the names of further calls.
void ExpectRoundTrip(const Graph& graph) {
  const absl::StatusOr<std::string> json = KerasModelJson("net", graph);
  ASSERT_TRUE(json.ok()) << json.status();
  const Graph again = ReadGraph(*json);
  ASSERT_EQ(again.nodes().size(), graph.nodes().size()) << *json;
  EXPECT_EQ(again.parameters(), graph.parameters());
  for (const Node& node : graph.nodes()) {
    const Node* other = nullptr;
    for (const Node& n : again.nodes()) {
      if (node.shares >= 0 ? n.shares >= 0 && n.layer.kind_case() == node.layer.kind_case() && n.output == node.output
                           : n.name == node.name) {
        other = &n;
      }
    }
    ASSERT_NE(other, nullptr) << node.name;
    EXPECT_EQ(other->output, node.output) << node.name;
    v1::Layer a = node.layer, b = other->layer;
    for (v1::Layer* layer : {&a, &b}) {
      layer->clear_name();
      layer->clear_inputs();
      layer->clear_shares();
      layer->clear_trainable();
    }
    EXPECT_EQ(a.DebugString(), b.DebugString()) << node.name;
  }
  std::vector<std::string> names, names_again;
  for (const int id : graph.inputs()) names.push_back(graph.nodes()[id].name);
  for (const int id : again.inputs()) names_again.push_back(again.nodes()[id].name);
  EXPECT_EQ(names_again, names);
}

// keras.applications' preprocess_input in its three modes.
TEST(KerasGraphs, ReadsPreprocessInput) {
  const std::string slice = R"({"class_name": "__slice__", "config": {"start": null, "stop": null, "step": -1}})";
  const std::string key =
      R"({"class_name": "__tuple__", "items": [{"class_name": "__ellipsis__", "config": {}}, )" + slice + "]}";
  const std::string mean =
      R"({"class_name": "__numpy__", "config": {"value": [[[[-103.939, -116.779, -123.68]]]], "dtype": "float32"}})";
  const Graph graph = ReadGraph(OfImage({Numpy("GetItem", "get_item", Keras3Tensor("image") + "," + key),
                                         Numpy("Add", "add", Keras3Tensor("get_item") + "," + mean),
                                         Numpy("TrueDivide", "true_divide", Keras3Tensor("add") + ", 127.5"),
                                         Numpy("Subtract", "subtract", Keras3Tensor("true_divide") + ", 1.0")},
                                        "subtract"));
  ASSERT_EQ(graph.nodes().size(), 5u);
  EXPECT_EQ(graph.nodes()[1].layer.slice().axes(2).step(), -1);
  EXPECT_FALSE(graph.nodes()[1].layer.slice().axes(0).has_step());
  EXPECT_THAT(graph.nodes()[2].layer.operation().constant(), ElementsAre(-103.939f, -116.779f, -123.68f));
  EXPECT_THAT(graph.nodes()[2].layer.operation().constant_shape(), ElementsAre(1, 1, 3));
  EXPECT_EQ(graph.nodes()[3].layer.operation().kind(), v1::Operation::DIVIDE);
  EXPECT_THAT(graph.nodes()[4].layer.operation().constant(), ElementsAre(1.0f));
  ExpectRoundTrip(graph);
}

TEST(KerasGraphs, ReadsOperationsOfKeras2) {
  const auto op = [](const std::string& function, const std::string& name, const std::string& inbound,
                     const char* type = "TFOpLambda") {
    return absl::StrCat(R"({"class_name": ")", type, R"(", "config": {"name": ")", name,
                        R"(", "trainable": true, "dtype": "float32", "function": ")", function, R"("}, "name": ")",
                        name, R"(", "inbound_nodes": [)", inbound, "]}");
  };
  const std::string json = absl::StrCat(
      R"({"class_name": "Functional", "config": {"name": "n", "layers": [
    {"class_name": "InputLayer", "config": {"batch_input_shape": [null, 6, 4], "name": "x"}, "name": "x", "inbound_nodes": []},)",
      op("__operators__.getitem", "tf.__operators__.getitem",
         R"(["x", 0, 0, {"slice_spec": [{"start": null, "stop": null, "step": null}, {"start": 1, "stop": 5, "step": null}]}])",
         "SlicingOpLambda"),
      ",", op("math.truediv", "tf.math.truediv", R"(["tf.__operators__.getitem", 0, 0, {"y": 127.5, "name": null}])"),
      ",",
      op("math.subtract", "tf.math.subtract",
         R"(["_CONSTANT_VALUE", -1, 1.0, {"y": ["tf.math.truediv", 0, 0], "name": null}])"),
      ",",
      op("__operators__.add", "tf.__operators__.add",
         R"(["tf.math.subtract", 0, 0, {"y": ["tf.math.truediv", 0, 0], "name": null}])"),
      ",",
      op("math.reduce_mean", "tf.math.reduce_mean",
         R"(["tf.__operators__.add", 0, 0, {"axis": [1], "keepdims": false}])"),
      ",", op("nn.bias_add", "tf.nn.bias_add", R"(["tf.math.reduce_mean", 0, 0, {"bias": [1, 2, 3, 4]}])"), ",",
      op("reshape", "tf.reshape", R"(["tf.nn.bias_add", 0, 0, {"shape": [-1, 2, 2]}])"), ",",
      op("concat", "tf.concat", R"([["tf.reshape", 0, 0, {"axis": 1}], ["tf.reshape", 0, 0, {"axis": 1}]])"),
      R"(], "input_layers": [["x", 0, 0]], "output_layers": [["tf.concat", 0, 0]]}})");
  const Graph graph = ReadGraph(json);
  ASSERT_EQ(graph.nodes().size(), 9u);
  EXPECT_THAT(graph.nodes()[1].output, ElementsAre(4, 4));
  EXPECT_TRUE(graph.nodes()[3].layer.operation().constant_first());
  EXPECT_THAT(graph.nodes()[4].inputs, ElementsAre(3, 2));
  EXPECT_THAT(graph.nodes()[5].output, ElementsAre(4));
  EXPECT_EQ(graph.nodes()[6].layer.operation().kind(), v1::Operation::ADD);
  EXPECT_THAT(graph.output().output, ElementsAre(4, 2));
  ExpectRoundTrip(graph);
}

// Every operation and reduction, as Graph::Build takes it, through an archive's description.
TEST(KerasGraphs, EveryOperationComesBack) {
  const std::string x = "layers { name: 'x' input { shape: [4, 4] } } layers { name: 'z' dense { units: 4 } } ";
  for (int kind = 1; kind < v1::Operation::Kind_ARRAYSIZE; ++kind) {
    if (!v1::Operation::Kind_IsValid(kind)) continue;
    const std::string name = v1::Operation::Kind_Name(static_cast<v1::Operation::Kind>(kind));
    SCOPED_TRACE(name);
    for (const char* more : {"inputs: 'z' operation {", "inputs: ['z', 'x'] operation {",
                             "inputs: ['x', 'z', 'z'] operation {", "inputs: 'z' operation { constant: 2.5",
                             "inputs: 'z' operation { constant: [1, 2] constant_shape: [2, 1] "
                             "constant_first: true",
                             "inputs: 'z' operation { low: 0.5 high: 2", "inputs: 'z' operation { low: -1",
                             "inputs: 'z' operation { axis: 1"}) {
      const auto graph =
          Graph::Build(FromText<v1::Model>(absl::StrCat(x, "layers { name: 'y' ", more, " kind: ", name, " } }")));
      if (name == "SQUARED_DIFFERENCE" && graph.ok()) {
        EXPECT_THAT(std::string(KerasModelJson("net", *graph).status().message()), HasSubstr("Keras 3 has no"));
      } else if (graph.ok()) {
        ExpectRoundTrip(*graph);
      }
    }
  }
  for (int kind = 1; kind < v1::Reduce::Kind_ARRAYSIZE; ++kind) {
    const std::string name = v1::Reduce::Kind_Name(static_cast<v1::Reduce::Kind>(kind));
    SCOPED_TRACE(name);
    for (const char* more : {"axis: 1", "axis: [1, 2]", "axis: 2 keepdims: true"}) {
      const auto graph = Graph::Build(
          FromText<v1::Model>(absl::StrCat(x, "layers { name: 'y' reduce { kind: ", name, " ", more, " } }")));
      if (name == "L1_NORM" && graph.ok() && graph->output().layer.reduce().axis_size() > 1) {
        EXPECT_THAT(std::string(KerasModelJson("net", *graph).status().message()), HasSubstr("Keras' norm of order 1"));
      } else if (graph.ok()) {
        ExpectRoundTrip(*graph);
      }
    }
  }
  for (const char* slice : {"axes { begin: 1 }", "axes {} axes { begin: -1 drop: true }", "axes { begin: 3 step: -2 }",
                            "axes { begin: 3 end: 0 step: -1 } axes { end: 2 }"}) {
    ExpectRoundTrip(
        Graph::Build(FromText<v1::Model>(absl::StrCat(x, "layers { name: 'y' slice { ", slice, " } }"))).value());
  }
  for (const char* layer :
       {"inputs: ['x', 'z'] subtract {}", "inputs: ['x', 'z'] minimum {}", "inputs: ['x', 'z'] concatenate { axis: 1 }",
        "inputs: ['x', 'z'] stack { axis: -1 }", "pad { before: [1, 0] after: [0, 2] constant_value: 1.5 }",
        "pad { mode: SYMMETRIC before: [1, 0] after: [0, 2] }",
        "take { axis: 2 indices: [0, -1, 0, 1] indices_shape: [2, 2] }"}) {
    ExpectRoundTrip(Graph::Build(FromText<v1::Model>(absl::StrCat(x, "layers { name: 'y' ", layer, " }"))).value());
  }
}

TEST(KerasGraphs, ASoftmaxAlongAnotherAxisIsAnOperation) {
  for (const char* axis : {R"("axis": 1)", R"("axis": [-3])"}) {
    const Graph graph = ReadGraph(OfImage({Keras3Node("Softmax", "y", axis, Keras3Tensor("image"))}, "y"));
    EXPECT_EQ(graph.output().layer.operation().kind(), v1::Operation::SOFTMAX);
    EXPECT_THAT(graph.output().layer.operation().axis(), ElementsAre(1));
    ExpectRoundTrip(graph);
  }
  for (const char* axis : {R"("axis": 3)", R"("axis": -1)"}) {
    const Graph graph = ReadGraph(OfImage({Keras3Node("Softmax", "y", axis, Keras3Tensor("image"))}, "y"));
    EXPECT_EQ(graph.output().activation, v1::SOFTMAX);
  }
}

// A layer that is called three times; weights stand once, under Keras' name.
TEST(KerasGraphs, ReadsALayerThatIsCalledAgain) {
  const auto call = [](const std::string& of, int number) {
    return absl::StrCat(
        R"({"args": [{"class_name": "__keras_tensor__", "config": {"shape": [null, 4], "dtype": "float32",
      "keras_history": [")",
        of, R"(", )", number, R"(, 0]}}], "kwargs": {}})");
  };
  const std::string shared = Keras3Layer("Dense", "d", R"("units": 4, "activation": "tanh", "use_bias": true)",
                                         absl::StrCat(R"(, "name": "d", "inbound_nodes": [)", call("image", 0), ",",
                                                      call("d", 0), ",", call("d", 1), "]"));
  const std::string end = Keras3Layer("Dense", "end", R"("units": 2, "activation": "linear", "use_bias": true)",
                                      absl::StrCat(R"(, "name": "end", "inbound_nodes": [)", call("d", 2), "]"));
  const Graph graph =
      ReadGraph(Keras3Functional(absl::StrCat(Keras3Input("image", "[null, 4]"), ",", shared, ",", end), "end"));
  ASSERT_EQ(graph.nodes().size(), 5u);
  EXPECT_EQ(graph.parameters(), 4 * 4 + 4 + 4 * 2 + 2);
  EXPECT_EQ(graph.nodes()[2].shares, 1);
  EXPECT_EQ(graph.nodes()[3].shares, 1);
  EXPECT_THAT(graph.nodes()[4].inputs, ElementsAre(3));
  EXPECT_THAT(KerasLayerPaths(graph), ElementsAre("layers/input_layer", "layers/dense", "", "", "layers/dense_1"));
  EXPECT_THAT(KerasOrder(graph), ElementsAre(0, 1, 4));
  ExpectRoundTrip(graph);
}

// A siamese network: a model that is called on two inputs. Keras 2 counts the model's own node as its first.
TEST(KerasGraphs, ReadsAModelThatIsCalledTwice) {
  for (const int first : {0, 1}) {
    const std::string json = absl::StrCat(R"({"class_name": "Functional", "config": {"name": "n", "layers": [
    {"class_name": "InputLayer", "config": {"batch_input_shape": [null, 4], "name": "left"}, "name": "left", "inbound_nodes": []},
    {"class_name": "InputLayer", "config": {"batch_input_shape": [null, 4], "name": "right"}, "name": "right", "inbound_nodes": []},
    {"class_name": "Sequential", "config": {"name": "tower", "layers": [
      {"class_name": "InputLayer", "config": {"batch_input_shape": [null, 4], "name": "inner"}},
      {"class_name": "Dense", "config": {"units": 3, "name": "a"}}, {"class_name": "Dense", "config": {"units": 2, "name": "b"}}]},
     "name": "tower", "inbound_nodes": [[["left", 0, 0, {}]], [["right", 0, 0, {}]]]},
    {"class_name": "Subtract", "config": {"name": "difference"}, "name": "difference", "inbound_nodes": [[["tower", )",
                                          first, R"(, 0, {}], ["tower", )", first + 1, R"(, 0, {}]]]}],
    "input_layers": [["right", 0, 0], ["left", 0, 0]], "output_layers": [["difference", 0, 0]]}})");
    const Graph graph = ReadGraph(json);
    ASSERT_EQ(graph.nodes().size(), 7u);
    EXPECT_EQ(graph.parameters(), 4 * 3 + 3 + 3 * 2 + 2);
    EXPECT_EQ(graph.nodes()[graph.inputs()[0]].name, "right");
    const Node& difference = graph.output();
    const Node &left = graph.nodes()[difference.inputs[0]], &right = graph.nodes()[difference.inputs[1]];
    EXPECT_EQ(left.name, "b");
    EXPECT_EQ(right.shares, left.id);
    EXPECT_EQ(graph.nodes()[graph.nodes()[left.inputs[0]].inputs[0]].name, "left");
    EXPECT_EQ(graph.nodes()[graph.nodes()[right.inputs[0]].inputs[0]].name, "right");
    ExpectRoundTrip(graph);
  }
}

TEST(KerasGraphs, ReadsSeveralOutputs) {
  const Graph graph = ReadGraph(absl::StrCat(
      R"({"class_name": "Functional", "config": {"name": "n", "layers": [
    {"class_name": "InputLayer", "config": {"batch_input_shape": [null, 4], "name": "x"}, "name": "x", "inbound_nodes": []},
    {"class_name": "Dense", "config": {"units": 3, "name": "p"}, "name": "p", "inbound_nodes": [[["x", 0, 0, {}]]]},
    {"class_name": "Dense", "config": {"units": 2, "name": "q"}, "name": "q", "inbound_nodes": [[["p", 0, 0, {}]]]}],
    "input_layers": [["x", 0, 0]], "output_layers": {"second": ["q", 0, 0], "first": ["p", 0, 0]}}})"));
  ASSERT_EQ(graph.outputs().size(), 2u);
  EXPECT_THAT(
      std::vector<std::string>({graph.nodes()[graph.outputs()[0]].name, graph.nodes()[graph.outputs()[1]].name}),
      testing::UnorderedElementsAre("p", "q"));
  const auto json = KerasModelJson("net", graph);
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(ReadGraph(*json).outputs(), graph.outputs());
}

TEST(KerasGraphs, AttentionIsCalledAsItWas) {
  for (const char* inputs : {"'x', 'y', 'z'", "'x', 'y', 'key=z'", "'x', 'value=y', 'key=z'",
                             "'query=x', 'value=y', 'key=z'", "'x', 'value=y'"}) {
    SCOPED_TRACE(inputs);
    const Graph graph =
        Graph::Build(FromText<v1::Model>(absl::StrCat("layers { name: 'x' input { shape: [3, 4] } } layers { name: 'y' "
                                                      "inputs: 'x' dense { units: 4 } } layers { name: 'z' inputs: "
                                                      "'x' dense { units: 4 } } layers { name: 'a' inputs: [",
                                                      inputs,
                                                      "] multi_head_attention { num_heads: 1 key_dim: 2 } } "
                                                      "layers { inputs: ['a', 'y', 'z'] add {} }")))
            .value();
    const KerasModel read = ReadKerasModel(KerasModelJson("m", graph).value()).value();
    const auto again = std::find_if(read.model.layers().begin(), read.model.layers().end(),
                                    [](const v1::Layer& l) { return l.name() == "a"; });
    ASSERT_NE(again, read.model.layers().end());
    EXPECT_EQ(std::vector<std::string>(again->inputs().begin(), again->inputs().end()),
              std::vector<std::string>(graph.nodes()[3].layer.inputs().begin(), graph.nodes()[3].layer.inputs().end()));
  }
}

TEST(KerasGraphs, RefusesByNameWhatItDoesNotHave) {
  struct Case {
    std::string layer, error;
  };
  const std::string x = Keras3Tensor("image");
  for (const Case& c : std::vector<Case>{
           {Numpy("Correlate", "y", x), "layer \"y\" (Correlate): Cairn does not have this operation on tensors"},
           {Numpy("Mean", "y", x, R"("axis": null, "keepdims": false)"),
            "axis is missing: it would reduce the batch too"},
           {Numpy("Mean", "y", x, R"("axis": [0, 1])"), "axis: [0,1] names the batch"},
           {Numpy("Mean", "y", x, R"("axis": 9)"), "axis: 9 is not an axis of its input"},
           {Numpy("Mean", "y", x, R"("axis": "a")"), "axis: \"a\" is not a whole number"},
           {Numpy("Add", "y", x + R"(, "two")"), "\"two\" is neither a number nor a tensor"},
           {Numpy("Add", "y", "1, 2"), "layer \"y\" (Add): it takes no input"},
           {Numpy("Add", "y", x + ", [[1, 2], [3]]"), "is neither a number nor a tensor"},
           {Numpy("GetItem", "y",
                  x + R"(, {"class_name": "__slice__", "config": {"start": 1, "stop": null, "step": null}})"),
            "its key takes a part of the batch"},
           {Numpy("GetItem", "y", x + R"(, [{"class_name": "__ellipsis__"}, "a"])"),
            "the index \"a\" is not supported"},
           {Numpy("Reshape", "y", x, R"("newshape": [4, -1])"), "newshape: [4,-1] does not leave the batch open"},
           {Numpy("Transpose", "y", x, R"("axes": [1, 0, 2, 3])"), "axes move the batch"},
           {Operation("keras.src.ops.core", "Cast", "y", R"("dtype": "int8")", x), "dtype: \"int8\" is not supported"},
           {Operation("keras.src.ops.nn", "Normalize", "y", R"("axis": -1, "order": 1)", x), "order other than 2"},
           {Numpy("Exp", "y", x, R"("speed": 3)"), "speed=3 is not supported; leave it out"},
       }) {
    EXPECT_THAT(ErrorOf(OfImage({c.layer}, "y")), HasSubstr(c.error)) << c.layer;
  }
}

// ---- descriptions that no program wrote ----

// A model of two calls of a model of two calls of ...: 2^depth layers, or none at all.
std::string CallsOfCalls(int depth, bool empty) {
  const std::string input = R"({"class_name": "InputLayer", "name": "i", "config": {"name": "i",
      "batch_input_shape": [null, 4]}, "inbound_nodes": []})";
  const std::string layer = R"({"class_name": "Dense", "name": "d", "config": {"name": "d", "units": 4},
      "inbound_nodes": [[["i", 0, 0, {}]]]})";
  std::string model = absl::StrCat(R"({"class_name": "Functional", "name": "m", "config": {"name": "m", "layers": [)",
                                   input, empty ? "" : ", ", empty ? "" : layer, R"(], "input_layers": [["i", 0, 0]],
      "output_layers": [[")",
                                   empty ? "i" : "d", R"(", 0, 0]]})");
  for (int level = 0; level < depth; ++level) {
    std::string calls = R"([["i", 0, 0, {}]])";
    for (int call = 0; call < 19; ++call) calls += absl::StrCat(R"(, [["m", )", call, ", 0, {}]]");
    model = absl::StrCat(R"({"class_name": "Functional", "name": "m", "config": {"name": "m", "layers": [)", input,
                         ", ", model, R"(, "inbound_nodes": [)", calls, R"(]}], "input_layers": [["i", 0, 0]],
      "output_layers": [["m", 19, 0]]})");
  }
  return model + "}";
}

TEST(KerasGraphs, ModelsWithinModelsDoNotGrowWithoutBound) {
  EXPECT_EQ(ReadGraph(CallsOfCalls(1, false)).nodes().size(), 21u);
  for (const bool empty : {false, true}) {
    EXPECT_THAT(ErrorOf(CallsOfCalls(7, empty)),
                HasSubstr("more than 4096 layers, or 16384 calls; use a smaller model"));
  }
}

TEST(KerasGraphs, ALayerIsNotCalledWithoutBound) {
  std::string calls = R"([["image", 0, 0, {}]])";
  for (int i = 0; i < 16384; ++i) calls += R"(, [["image", 0, 0, {}]])";
  const std::string layer = absl::StrCat(
      R"({"class_name": "Flatten", "name": "f", "config": {"name": "f"}, "inbound_nodes": [)", calls, "]}");
  EXPECT_EQ(ErrorOf(OfImage({layer}, "f")), "config.layers: more than 16384 calls of layers; use a smaller model");
}

// An output that is there, but of a call that is not.
TEST(KerasGraphs, AnOutputOfNoCallIsShownAsItIsCalled) {
  std::string json = OfImage({Keras3Node("Dense", "d", R"("units": 2)", Keras3Tensor("image"))}, "d");
  const size_t at = json.rfind(R"("d", 0, 0)");
  EXPECT_EQ(ErrorOf(json.replace(at, 9, R"("d", 3, 0)")),
            "config.output_layers: \"d (call 3)\" is not a layer of the model");
}

TEST(KerasGraphs, AxesAreOneNumber) {
  const std::string image = Keras3Tensor("image");
  EXPECT_EQ(ErrorOf(OfImage({Numpy("Swapaxes", "s", image, R"("axis1": [], "axis2": 2)")}, "s")),
            "layer \"s\" (Swapaxes): axis1 or axis2 is not one number; give one for each");
  EXPECT_THAT(ErrorOf(OfImage({Numpy("Swapaxes", "s", image, R"("axis1": 1, "axis2": [1, 2])")}, "s")),
              HasSubstr("is not one number"));
}

// One layer in the manner of Keras 2 takes as a value what is a mask to one in that of Keras 3.
TEST(KerasGraphs, AMaskIsNoInput) {
  const std::string image = Keras3Tensor("image");
  const std::string old = R"({"class_name": "Dense", "name": "old", "config": {"name": "old", "units": 2},
      "inbound_nodes": [[["mask", 0, 0, {}]]]})";
  const std::string json =
      OfImage({Numpy("NotEqual", "mask", image + ", 0"), old,
               Keras3Node("Flatten", "f", "", image, absl::StrCat(R"("mask": )", Keras3Tensor("mask"))),
               Keras3Node("Flatten", "g", "", Keras3Tensor("old")),
               Keras3Node("Concatenate", "c", "", "[" + Keras3Tensor("f") + ", " + Keras3Tensor("g") + "]")},
              "c");
  EXPECT_THAT(ErrorOf(json), HasSubstr("layer \"old\" (Dense): its input \"mask\" is a mask"));
}

}  // namespace
}  // namespace cairn
