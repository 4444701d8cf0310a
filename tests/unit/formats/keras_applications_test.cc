// Goal: what Keras 3 itself writes of its own models: the layers of keras.applications that no class of keras.layers
// is, masks that are named in calls, models within models within models, activations as operations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/formats/hdf5_file.h"
#include "common/formats/keras_archive.h"
#include "common/formats/keras_model.h"
#include "common/formats/zip_file.h"
#include "common/model/graph.h"
#include "tests/unit/formats/keras_text.h"

namespace cairn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string TensorOf(const std::string& layer, const std::string& shape, int call = 0) {
  return absl::StrCat(R"({"class_name": "__keras_tensor__", "config": {"shape": )", shape,
                      R"(, "dtype": "float32", "keras_history": [")", layer, R"(", )", call, ", 0]}}");
}

std::string Operation(const std::string& type, const std::string& name, const std::string& args,
                      const std::string& config = "", const std::string& module = "numpy") {
  return absl::StrCat(R"({"module": "keras.src.ops.)", module, R"(", "class_name": ")", type,
                      R"(", "config": {"name": ")", name, "\"", config.empty() ? "" : ", ", config,
                      R"(}, "registered_name": ")", type, R"(", "name": ")", name, R"(", "inbound_nodes": [{"args": [)",
                      args, R"(], "kwargs": {}}]})");
}

absl::StatusOr<Graph> Read(const std::string& json) {
  const absl::StatusOr<KerasModel> model = ReadKerasModel(json);
  return model.ok() ? Graph::Build(model->model) : absl::StatusOr<Graph>(model.status());
}

const Node& NodeOf(const Graph& graph, const std::string& name) {
  for (const Node& node : graph.nodes()) {
    if (node.name == name) return node;
  }
  CAIRN_CHECK(false, name);
  return graph.nodes()[0];
}

std::string OfImage(const std::vector<std::string>& layers, const std::string& output) {
  return Keras3Functional(absl::StrCat(Keras3Input("image", "[null, 8, 8, 3]"), ",", absl::StrJoin(layers, ",")),
                          output);
}

std::string WhyOf(const std::string& json) {
  const absl::StatusOr<Graph> graph = Read(json);
  return graph.ok() ? "accepted" : std::string(graph.status().message());
}

// ---- the classes of keras.applications ----

TEST(KerasApplications, CustomScaleLayerIsASumOfTheSecondInputScaled) {
  const std::string two = absl::StrCat("[", Keras3Tensor("image"), ",", Keras3Tensor("conv"), "]");
  const std::string conv =
      Keras3Node("Conv2D", "conv", R"("filters": 3, "kernel_size": [1, 1])", Keras3Tensor("image"));
  const auto graph = Read(OfImage({conv, Keras3Node("CustomScaleLayer", "sum", R"("scale": 0.17)", two)}, "sum"));
  ASSERT_TRUE(graph.ok()) << graph.status();
  const Node& sum = graph->output();
  EXPECT_EQ(sum.name, "sum");
  EXPECT_EQ(sum.kind, LayerKind::kAdd);
  ASSERT_EQ(sum.inputs.size(), 2u);
  const Node& scaled = graph->nodes()[static_cast<size_t>(sum.inputs[1])];
  EXPECT_EQ(graph->nodes()[static_cast<size_t>(sum.inputs[0])].name, "image");
  EXPECT_FLOAT_EQ(scaled.layer.rescaling().scale(), 0.17f);
  EXPECT_EQ(graph->nodes()[static_cast<size_t>(scaled.inputs[0])].name, "conv");

  EXPECT_THAT(
      WhyOf(OfImage({conv, Keras3Node("CustomScaleLayer", "sum", R"("scale": 0.17)", Keras3Tensor("conv"))}, "sum")),
      HasSubstr("layer \"sum\" (CustomScaleLayer): it takes 1 inputs; give it two"));
  EXPECT_THAT(WhyOf(OfImage({conv, Keras3Node("CustomScaleLayer", "sum", "", two)}, "sum")),
              HasSubstr("scale is missing"));
  EXPECT_THAT(WhyOf(OfImage({conv, Keras3Node("CustomScaleLayer", "sum", R"("scale": 1, "by": 2)", two)}, "sum")),
              HasSubstr("by: 2 is not supported"));
}

TEST(KerasApplications, LayerScaleIsADepthwiseKernelOfOnePixel) {
  const auto scale = [](const std::string& config) {
    return OfImage({Keras3Node("LayerScale", "scale", config, Keras3Tensor("image"))}, "scale");
  };
  const auto graph = Read(scale(R"("init_values": 1e-6, "projection_dim": 3)"));
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(graph->output().kind, LayerKind::kDepthwiseConv2D);
  EXPECT_EQ(graph->parameters(), 3);
  EXPECT_THAT(graph->variables()[0].shape, ElementsAre(1, 1, 3, 1));
  EXPECT_EQ(graph->variables()[0].initializer.kind(), v1::Initializer::CONSTANT);
  EXPECT_FLOAT_EQ(graph->variables()[0].initializer.value(), 1e-6f);
  EXPECT_THAT(WhyOf(scale(R"("init_values": 1e-6, "projection_dim": 4)")),
              HasSubstr("layer \"scale\" (LayerScale): projection_dim: 4, but its input has 3 channels"));
  EXPECT_THAT(WhyOf(scale(R"("projection_dim": 3)")), HasSubstr("init_values is missing"));
}

// Its numbers are a list in Keras' file.
TEST(KerasApplications, LayerScalesWeightsAreRead) {
  const std::string dir = testing::TempDir(), weights = absl::StrCat(dir, "/layer_scale.h5"),
                    archive = absl::StrCat(dir, "/layer_scale.keras");
  for (const bool fits : {true, false}) {
    std::filesystem::remove(weights);
    std::filesystem::remove(archive);
    auto writer = Hdf5Writer::Create(weights).value();
    ASSERT_TRUE(writer->AddGroup("layers/layer_scale/vars", "scale").ok());
    const std::vector<float> numbers = {1, 2, 3, 4};
    const int64_t count = fits ? 3 : 4;
    ASSERT_TRUE(writer
                    ->AddArray("layers/layer_scale/vars", "0", {count},
                               absl::MakeConstSpan(numbers).subspan(0, static_cast<size_t>(count)))
                    .ok());
    ASSERT_TRUE(writer->Close().ok());
    const std::string config = OfImage(
        {Keras3Node("LayerScale", "scale", R"("init_values": 0.5, "projection_dim": 3)", Keras3Tensor("image"))},
        "scale");
    ASSERT_TRUE(WriteZip(archive, {{"metadata.json", R"({"keras_version": "3.9.0"})", ""},
                                   {"config.json", config, ""},
                                   {"model.weights.h5", "", weights}})
                    .ok());
    const auto read = ReadKerasArchiveWeights(archive);
    ASSERT_EQ(read.ok(), fits) << read.status();
    if (!fits) {
      EXPECT_THAT(std::string(read.status().message()), HasSubstr("variable \"scale/kernel\""));
      continue;
    }
    ASSERT_EQ(read->tensors.size(), 1u);
    EXPECT_THAT(read->tensors[0].shape, ElementsAre(1, 1, 3, 1));
    EXPECT_THAT(read->tensors[0].data.floats(), ElementsAre(1, 2, 3));
  }
}

TEST(KerasApplications, IdentityIsALinearActivation) {
  const auto graph = Read(OfImage({Keras3Node("Identity", "same", "", Keras3Tensor("image"))}, "same"));
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(graph->output().layer.activation().activation(), v1::LINEAR);
}

// Keras builds it with the shapes of its list before it reads its weights.
TEST(KerasApplications, ALayerOfAListIsBuiltWithAllShapes) {
  const std::string two = absl::StrCat("[", TensorOf("image", "[null, 6, 4]"), ",", TensorOf("d", "[null, 6, 4]"), "]");
  const auto graph =
      Read(Keras3Functional(absl::StrCat(Keras3Input("image", "[null, 6, 4]"), ",",
                                         Keras3Node("Dense", "d", R"("units": 4)", TensorOf("image", "[null, 6, 4]")),
                                         ",", Keras3Node("AdditiveAttention", "attention", "", two)),
                            "attention"));
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_THAT(KerasModelJson("net", *graph).value(),
              HasSubstr(R"("build_config":{"input_shape":[[null,6,4],[null,6,4]]})"));
}

// ---- masks in calls ----

constexpr char kIds[] = "[null, 6]", kSteps[] = "[null, 6, 4]";

std::string Embedding(const std::string& name, const std::string& ids, bool masks = true) {
  return Keras3Node("Embedding", name,
                    absl::StrCat(R"("input_dim": 9, "output_dim": 4, "mask_zero": )", masks ? "true" : "false"),
                    TensorOf(ids, kIds));
}
std::string Lstm(const std::string& x, const std::string& mask) {
  return Keras3Node("LSTM", "lstm", R"("units": 3)", TensorOf(x, kSteps), absl::StrCat(R"("mask": )", mask));
}
std::string NotZero(const std::string& name, const std::string& ids) {
  return Operation("NotEqual", name, TensorOf(ids, kIds) + ", 0");
}
// Of two inputs of ids; "tags" masks the other one's, and stands beside the output of "lstm".
std::string OfIds(const std::vector<std::string>& layers) {
  const std::string end = absl::StrCat("[", TensorOf("lstm", "[null, 3]"), ",", TensorOf("flat", "[null, 24]"), "]");
  return Keras3Functional(
      absl::StrCat(Keras3Input("ids", kIds), ",", Keras3Input("others", kIds), ",", Embedding("tags", "others"), ",",
                   absl::StrJoin(layers, ","), ",", Keras3Node("Flatten", "flat", "", TensorOf("tags", kSteps)), ",",
                   Keras3Node("Concatenate", "end", R"("axis": -1)", end)),
      "end", R"([["ids", 0, 0], ["others", 0, 0]])");
}
std::string Joined(const std::string& a, const std::string& b) {
  return Keras3Node("Add", "sum", "", absl::StrCat("[", TensorOf(a, kSteps), ",", TensorOf(b, kSteps), "]"));
}

TEST(KerasMasks, AMaskOfTheInputIsTheLayersOwn) {
  const auto graph = Read(OfIds({Embedding("words", "ids"), NotZero("not_equal", "ids"), Joined("words", "words"),
                                 Lstm("sum", TensorOf("not_equal", kIds))}));
  ASSERT_TRUE(graph.ok()) << graph.status();
  for (const Node& node : graph->nodes()) EXPECT_NE(node.name, "not_equal");
  const Node& lstm = NodeOf(*graph, "lstm");
  const int mask = graph->nodes()[static_cast<size_t>(lstm.inputs[0])].mask;
  ASSERT_GE(mask, 0);
  EXPECT_EQ(graph->nodes()[static_cast<size_t>(mask)].name, "words");
}

// Any(Concatenate([LogicalOr(ExpandDims(mask), ZerosLike(x)), ...])), as keras.layers.Concatenate makes it.
TEST(KerasMasks, ThoseOfConcatenatedFeaturesAreCompared) {
  const std::string wide = "[null, 6, 8]";
  const auto part = [](const std::string& of) {
    return absl::StrCat(
        Operation("ExpandDims", absl::StrCat("dims_", of), TensorOf("not_equal", kIds), R"("axis": -1)"), ",",
        Operation("ZerosLike", absl::StrCat("zeros_", of), TensorOf(of, kSteps)), ",",
        Operation("LogicalOr", absl::StrCat("part_", of),
                  absl::StrCat(TensorOf(absl::StrCat("dims_", of), "[null, 6, 1]"), ",",
                               TensorOf(absl::StrCat("zeros_", of), kSteps))));
  };
  const auto model = [&](bool second_masked, bool whole) {
    const std::string second = whole ? "ones_b" : "part_b";
    const std::string parts = absl::StrCat("[", TensorOf("part_a", kSteps), ",", TensorOf(second, kSteps), "]");
    return OfIds({Embedding("a", "ids"), Embedding("b", "ids", second_masked), NotZero("not_equal", "ids"), part("a"),
                  whole ? Operation("OnesLike", "ones_b", TensorOf("b", kSteps)) : part("b"),
                  Operation("Concatenate", "masks", parts, R"("axis": -1)"),
                  Operation("Any", "any", TensorOf("masks", wide), R"("axis": -1, "keepdims": false)"),
                  Keras3Node("Concatenate", "features", R"("axis": -1)",
                             absl::StrCat("[", TensorOf("a", kSteps), ",", TensorOf("b", kSteps), "]")),
                  Keras3Node("LSTM", "lstm", R"("units": 3)", TensorOf("features", wide),
                             absl::StrCat(R"("mask": )", TensorOf("any", kIds)))});
  };
  const auto whole = Read(model(false, true));  // a step that one input has whole is taken
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(NodeOf(*whole, "features").mask, -1);
  EXPECT_THAT(WhyOf(model(false, false)), HasSubstr("its mask is not that of its input \"features\", which has none"));
  // The embeddings' masks are equal, but of two layers.
  EXPECT_THAT(WhyOf(model(true, false)), HasSubstr("masks of different layers"));
}

TEST(KerasMasks, AMaskingLayersIsCompared) {
  const auto model = [](const std::string& value) {
    return OfImage({Keras3Node("Reshape", "steps", R"("target_shape": [6, 32])", Keras3Tensor("image")),
                    Keras3Node("Masking", "masking", R"("mask_value": 0.5)", TensorOf("steps", "[null, 6, 32]")),
                    Operation("NotEqual", "not_equal", absl::StrCat(TensorOf("steps", "[null, 6, 32]"), ", ", value)),
                    Operation("Any", "any", TensorOf("not_equal", "[null, 6, 32]"), R"("axis": -1, "keepdims": false)"),
                    Keras3Node("GRU", "gru", R"("units": 3)", TensorOf("masking", "[null, 6, 32]"),
                               absl::StrCat(R"("mask": )", TensorOf("any", kIds)))},
                   "gru");
  };
  const auto graph = Read(model("0.5"));
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(NodeOf(*graph, "masking").mask, NodeOf(*graph, "masking").id);
  EXPECT_THAT(WhyOf(model("0.25")), HasSubstr("layer \"gru\" (GRU): it is called with a tensor as mask, which is not"));
}

TEST(KerasMasks, AnothersMaskIsRefused) {
  const std::string words = Embedding("words", "ids"), of_ids = NotZero("not_equal", "ids"),
                    of_others = NotZero("not_equal_1", "others");
  const std::string two = absl::StrCat(TensorOf("not_equal", kIds), ",", TensorOf("not_equal_1", kIds));
  const std::string itself = absl::StrCat(TensorOf("or", kIds), ",", TensorOf("or", kIds));
  const std::string by_or = TensorOf("or", kIds);
  EXPECT_THAT(
      WhyOf(OfIds({words, of_others, Lstm("words", TensorOf("not_equal_1", kIds))})),
      HasSubstr("layer \"lstm\" (LSTM): its mask is not that of its input \"words\", which is made by \"words\""));
  EXPECT_THAT(WhyOf(OfIds({words, of_ids, of_others, Operation("LogicalOr", "or", two), Joined("words", "tags"),
                           Lstm("sum", by_or)})),
              HasSubstr("which is not the mask that Keras makes of one Embedding or Masking layer"));
  EXPECT_THAT(WhyOf(OfIds({words, Lstm("words", TensorOf("ids", kIds))})),
              HasSubstr("layer \"lstm\" (LSTM): it is called with a tensor as mask, which is not"));
  EXPECT_THAT(WhyOf(OfIds({words, Operation("LogicalOr", "or", itself), Lstm("words", by_or)})),
              HasSubstr("lead back to itself"));
}

// An operation that something else than a mask takes is a layer.
TEST(KerasMasks, WhatIsNotOnlyAMaskStays) {
  const std::string dims = Operation("ExpandDims", "dims", TensorOf("not_equal", kIds), R"("axis": -1)");
  EXPECT_THAT(WhyOf(OfIds({Embedding("words", "ids"), NotZero("not_equal", "ids"), dims,
                           Lstm("words", TensorOf("not_equal", kIds))})),
              HasSubstr("does not reach the model's output"));
}

// ---- models within models ----

// Keras 3 numbers the calls of a model within a model from 0 in inbound_nodes, and from 1 in output_layers.
TEST(KerasNested, AModelThatIsCalledTwiceAndIsTheOutput) {
  const std::string shape = "[null, 4]";
  const auto node = [&](const std::string& of, int call) {
    return absl::StrCat(R"({"args": [)", TensorOf(of, shape, call), R"(], "kwargs": {"mask": null}})");
  };
  const std::string inner = absl::StrCat(
      R"({"module": "keras.src.models.functional", "class_name": "Functional", "config": {"name": "block", "layers": [)",
      Keras3Input("x", shape), ",",
      Keras3Node("Dense", "d", R"("units": 4, "activation": "tanh")", TensorOf("x", shape)),
      R"(], "input_layers": [["x", 0, 0]], "output_layers": [["d", 0, 0]]}, "name": "block", "inbound_nodes": [)",
      node("image", 0), ",", node("block", 0), "]}");
  const auto model = [&](int output) {
    return absl::StrCat(
        R"({"module": "keras.src.models.functional", "class_name": "Functional", "config": {"name": "net", "layers": [)",
        Keras3Input("image", shape), ",", inner,
        R"(], "input_layers": [["image", 0, 0]], "output_layers": [["block", )", output, ", 0]]}}");
  };
  const auto graph = Read(model(2));
  ASSERT_TRUE(graph.ok()) << graph.status();
  ASSERT_EQ(graph->nodes().size(), 3u);
  EXPECT_EQ(graph->output().shares, 1);
  EXPECT_THAT(graph->output().inputs, ElementsAre(1));
  EXPECT_THAT(WhyOf(model(3)), HasSubstr("is not a layer of the model"));
}

// ---- activations and axes as operations ----

TEST(KerasOperations, ActivationsAreRead) {
  struct Case {
    const char *type, *config;
    v1::Activation activation;
    float argument;  // the slope, alpha or threshold
  };
  for (const Case& c : {Case{"LeakyRelu", R"("negative_slope": 0.2)", v1::LEAKY_RELU, 0.2f},
                        Case{"Celu", R"("alpha": 2.0)", v1::CELU, 2}, Case{"Elu", R"("alpha": 0.5)", v1::ELU, 0.5f},
                        Case{"HardShrink", R"("threshold": 0.25)", v1::HARD_SHRINK, 0.25f},
                        Case{"SoftShrink", R"("threshold": 0.75)", v1::SOFT_SHRINK, 0.75f},
                        Case{"Gelu", R"("approximate": false)", v1::GELU, 0}, Case{"Gelu", "", v1::GELU_TANH, 0},
                        Case{"Selu", "", v1::SELU, 0}, Case{"Squareplus", R"("b": 4)", v1::SQUAREPLUS, 0},
                        Case{"LogSoftmax", R"("axis": -1)", v1::LOG_SOFTMAX, 0}, Case{"Softsign", "", v1::SOFTSIGN, 0},
                        Case{"HardSigmoid", "", v1::HARD_SIGMOID, 0}}) {
    SCOPED_TRACE(c.type);
    const auto graph = Read(OfImage({Operation(c.type, "y", Keras3Tensor("image"), c.config, "nn")}, "y"));
    ASSERT_TRUE(graph.ok()) << graph.status();
    const v1::ActivationLayer& layer = graph->output().layer.activation();
    EXPECT_EQ(layer.activation(), c.activation);
    const float argument = layer.has_negative_slope() ? layer.negative_slope()
                           : layer.has_alpha()        ? layer.alpha()
                                                      : layer.threshold();
    EXPECT_FLOAT_EQ(argument, c.argument);
  }
  for (const auto& [type, config, why] : std::vector<std::array<const char*, 3>>{
           {"Squareplus", R"("b": 2)", "b: 2 is not supported; use 4"},
           {"LogSoftmax", R"("axis": 1)", "axis: 1 is not supported"},
           {"LeakyRelu", R"("negative_slope": "a")", "negative_slope: \"a\" is not a number"},
           {"Selu", R"("speed": 2)", "speed=2 is not supported"}}) {
    EXPECT_THAT(WhyOf(OfImage({Operation(type, "y", Keras3Tensor("image"), config, "nn")}, "y")),
                HasSubstr(absl::StrCat("layer \"y\" (", type, "): ", why)));
  }
}

TEST(KerasOperations, AxesAreMoved) {
  const auto model = [](const std::string& config) {
    return OfImage({Keras3Node("Reshape", "x", R"("target_shape": [2, 3, 32])", Keras3Tensor("image")),
                    Operation("Moveaxis", "y", TensorOf("x", "[null, 2, 3, 32]"), config)},
                   "y");
  };
  EXPECT_THAT(Read(model(R"("source": 1, "destination": 3)"))->output().output, ElementsAre(3, 32, 2));
  EXPECT_THAT(Read(model(R"("source": -1, "destination": 1)"))->output().output, ElementsAre(32, 2, 3));
  EXPECT_THAT(Read(model(R"("source": [1, 3], "destination": [3, 2])"))->output().output, ElementsAre(3, 32, 2));
  EXPECT_THAT(WhyOf(model(R"("source": [1, 1], "destination": [3, 2])")), HasSubstr("names an axis twice"));
  EXPECT_THAT(WhyOf(model(R"("source": [1, 2], "destination": [3])")), HasSubstr("different lengths"));
  EXPECT_THAT(WhyOf(model(R"("source": 0, "destination": 1)")), HasSubstr("names the batch"));
}

}  // namespace
}  // namespace cairn
