// Goal: what Keras 2, Keras 3 and tensorflow.js write of a model becomes the same model here, layer by layer.
#include "common/formats/keras_model.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "absl/strings/str_replace.h"
#include "common/formats/expand_model.h"
#include "common/formats/keras_order.h"
#include "common/model/graph.h"
#include "tests/unit/formats/keras_text.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

using testing::ElementsAre;

KerasModel Read(const std::string& json) {
  absl::StatusOr<KerasModel> model = ReadKerasModel(json);
  CAIRN_CHECK(model.ok(), std::string(model.status().message()));
  return *std::move(model);
}

// The layers' inputs are given as text protobuf too.
void ExpectLayers(const KerasModel& read, const std::string& expected) {
  const v1::Model model = FromText<v1::Model>(expected);
  ASSERT_EQ(read.model.layers_size(), model.layers_size()) << read.model.DebugString();
  for (int i = 0; i < model.layers_size(); ++i) {
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(read.model.layers(i), model.layers(i)))
        << read.model.layers(i).DebugString() << "instead of\n"
        << model.layers(i).DebugString();
  }
}

std::string Fixture(const std::string& name) {
  const char* source = std::getenv("CAIRN_SOURCE");
  CAIRN_CHECK(source != nullptr, "run by ctest, or set CAIRN_SOURCE to the root of the tree");
  std::stringstream text;
  text << std::ifstream(absl::StrCat(source, "/tests/unit/formats/keras/", name)).rdbuf();
  CAIRN_CHECK(!text.str().empty(), "the fixture " + name);
  return text.str();
}

// The files are what tensorflow.js 4.22 (tfjs-layers) wrote of models of ours; it counted parameters and shapes itself.
TEST(KerasModel, ReadsWhatTensorflowJsWrites) {
  const KerasModel sequential = Read(Fixture("tfjs_sequential.json"));
  EXPECT_EQ(sequential.model.name(), "conv_net");
  const absl::StatusOr<Graph> graph = Graph::Build(sequential.model);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(graph->parameters(), 1264);
  EXPECT_EQ(graph->nodes().size(), 13u);
  EXPECT_EQ(graph->nodes()[7].output, (Shape{9, 7, 16}));  // zero padding
  EXPECT_EQ(graph->nodes()[8].output, (Shape{4, 3, 6}));   // separable convolution
  EXPECT_EQ(graph->variables().back().name, "dense_Dense1/bias");
  const v1::Initializer& he_normal =
      sequential.model.layers(12).dense().kernel_initializer();  // as tensorflow.js writes it
  EXPECT_EQ(he_normal.ShortDebugString(),
            "kind: VARIANCE_SCALING scale: 2 mode: FAN_IN distribution: DISTRIBUTION_TRUNCATED_NORMAL");
  EXPECT_FLOAT_EQ(sequential.model.layers(5).activation().negative_slope(), 0.1f);

  const absl::StatusOr<Graph> branches = Graph::Build(Read(Fixture("tfjs_functional.json")).model);
  ASSERT_TRUE(branches.ok()) << branches.status();
  EXPECT_EQ(branches->parameters(), 164);
  EXPECT_EQ(branches->output().name, "out");

  const absl::StatusOr<Graph> text = Graph::Build(Read(Fixture("tfjs_text.json")).model);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->parameters(), 950);
}

TEST(KerasModel, ReadsSequentialOfKeras2) {
  const KerasModel read = Read(Keras2Sequential(absl::StrCat(
      KerasLayerText("Rescaling",
                     R"("name": "rescaling", "trainable": true, "dtype": "float32", "scale": 0.5, "offset": 0.0)"),
      ",",
      KerasLayerText("Conv2D",
                     R"("name": "conv2d", "trainable": true, "dtype": "float32", "filters": 32, "kernel_size": [3, 3],
        "strides": [1, 1], "padding": "same", "data_format": "channels_last", "dilation_rate": [1, 1], "groups": 1,
        "activation": "relu", "use_bias": true, "kernel_initializer": {"class_name": "HeNormal", "config": {"seed": null}},
        "bias_initializer": {"class_name": "Constant", "config": {"value": 0.25}},
        "kernel_regularizer": {"class_name": "L2", "config": {"l2": 9.999999747378752e-05}},
        "bias_regularizer": {"class_name": "L1L2", "config": {"l1": 0.0, "l2": 0.0}}, "activity_regularizer": null, "kernel_constraint": null, "bias_constraint": null)"),
      ",",
      KerasLayerText("BatchNormalization",
                     R"("name": "bn", "axis": [3], "momentum": 0.9, "epsilon": 1e-05, "center": true,
        "scale": false, "beta_initializer": {"class_name": "Zeros", "config": {}}, "gamma_initializer":
        {"class_name": "Ones", "config": {}}, "moving_mean_initializer": {"class_name": "Zeros", "config": {}},
        "moving_variance_initializer": {"class_name": "Ones", "config": {}}, "beta_regularizer": null, "renorm": false,
        "renorm_clipping": null, "renorm_momentum": 0.99)"),
      ",", KerasLayerText("LeakyReLU", R"("name": "leaky", "alpha": 0.1)"), ",",
      KerasLayerText("ReLU", R"("name": "relu6", "max_value": 6.0, "negative_slope": 0.0, "threshold": 0.0)"), ",",
      KerasLayerText("MaxPooling2D", R"("name": "pool", "pool_size": [2, 2], "padding": "valid", "strides": [2, 2],
        "data_format": "channels_last")"),
      ",",
      KerasLayerText("ZeroPadding2D", R"("name": "pad", "padding": [[1, 2], [3, 4]], "data_format": "channels_last")"),
      ",", KerasLayerText("Flatten", R"("name": "flatten", "data_format": "channels_last")"), ",",
      KerasLayerText("Dropout", R"("name": "dropout", "rate": 0.5, "noise_shape": null, "seed": 7)"), ",",
      KerasLayerText("Dense", R"("name": "dense", "units": 10, "activation": "linear", "use_bias": false)"), ",",
      KerasLayerText("Softmax", R"("name": "softmax", "axis": -1)"))));
  EXPECT_EQ(read.model.name(), "net");
  ExpectLayers(read, R"(
    layers { name: "input_1" input { shape: [28, 28, 1] } }
    layers { name: "rescaling" inputs: "input_1" rescaling { scale: 0.5 } }
    layers { name: "conv2d" inputs: "rescaling" conv2d { filters: 32 kernel_size: [3, 3] strides: [1, 1] padding: SAME
             dilation_rate: [1, 1] activation: RELU use_bias: true kernel_initializer { kind: HE_NORMAL }
             bias_initializer { kind: CONSTANT value: 0.25 } kernel_regularizer { l2: 0.0001 } groups: 1 } }
    layers { name: "bn" inputs: "conv2d" batch_normalization { momentum: 0.9 epsilon: 1e-5 center: true scale: false
             beta_initializer { kind: ZEROS } moving_mean_initializer { kind: ZEROS }
             moving_variance_initializer { kind: ONES } } }
    layers { name: "leaky" inputs: "bn" activation { activation: LEAKY_RELU negative_slope: 0.1 } }
    layers { name: "relu6" inputs: "leaky" activation { activation: RELU6 } }
    layers { name: "pool" inputs: "relu6" max_pooling2d { pool_size: [2, 2] strides: [2, 2] padding: VALID } }
    layers { name: "pad" inputs: "pool" zero_padding2d { padding: [1, 2, 3, 4] } }
    layers { name: "flatten" inputs: "pad" flatten {} }
    layers { name: "dropout" inputs: "flatten" dropout { rate: 0.5 seed: 7 } }
    layers { name: "dense" inputs: "dropout" dense { units: 10 activation: LINEAR use_bias: false } }
    layers { name: "softmax" inputs: "dense" activation { activation: SOFTMAX axis: -1 } })");
  // Keras counts containers by class; an input layer of a Sequential model has none.
  EXPECT_THAT(read.weight_paths,
              ElementsAre("", "layers/rescaling", "layers/conv2d", "layers/batch_normalization", "layers/leaky_re_lu",
                          "layers/re_lu", "layers/max_pooling2d", "layers/zero_padding2d", "layers/flatten",
                          "layers/dropout", "layers/dense", "layers/softmax"));
}

TEST(KerasModel, ReadsTheInputShapeWhereverKerasPutsIt) {
  const std::string dense = R"("name": "d", "units": 2)";
  const std::string head = R"({"class_name": "Sequential", "config": {"name": "n", "layers": [)";
  const std::string expected = R"(layers { name: "input_layer" input { shape: [8] } }
                                  layers { name: "d" inputs: "input_layer" dense { units: 2 use_bias: true } })";
  ExpectLayers(Read(absl::StrCat(head, KerasLayerText("Dense", dense + R"(, "batch_input_shape": [null, 8])"), "]}}")),
               expected);
  ExpectLayers(Read(absl::StrCat(head, KerasLayerText("Dense", dense), R"(], "build_input_shape": [null, 8]}})")),
               expected);
  ExpectLayers(
      Read(absl::StrCat(head, KerasLayerText("Dense", dense), R"(]}, "build_config": {"input_shape": [null, 8]}})")),
      expected);
  // A model may be nothing but a list of layers, and a tuple an object of its own.
  ExpectLayers(
      Read(absl::StrCat(
          R"({"class_name": "Sequential", "config": [)",
          KerasLayerText("Dense", dense + R"(, "batch_input_shape": {"class_name": "__tuple__", "items": [null, 8]})"),
          "]}")),
      expected);
}

TEST(KerasModel, ReadsFunctionalOfKeras3) {
  const std::string layers = absl::StrCat(
      Keras3Input("image", "[null, 8, 8, 3]"), ",",
      Keras3Node("Conv2D", "a",
                 absl::StrCat(R"("filters": 3, "kernel_size": [1, 1], "strides": [1, 1], "padding": "valid",
        "data_format": "channels_last", "dilation_rate": [1, 1], "groups": 1, "activation": "gelu", "use_bias": true,
        "kernel_initializer": )",
                              Keras3Initializer("GlorotUniform", R"("seed": null)"), R"(, "bias_initializer": )",
                              Keras3Initializer("Zeros")),
                 Keras3Tensor("image")),
      ",", Keras3Node("Multiply", "gate", "", absl::StrCat("[", Keras3Tensor("a"), ", ", Keras3Tensor("image"), "]")),
      ",", Keras3Node("Conv2D", "b", R"("filters": 4, "kernel_size": 3, "use_bias": false)", Keras3Tensor("gate")), ",",
      Keras3Node("LayerNormalization", "ln",
                 R"("axis": -1, "epsilon": 0.001, "center": true, "scale": true, "rms_scaling": false)",
                 Keras3Tensor("b"), R"("mask": null)"),
      ",",
      Keras3Node("GlobalAveragePooling2D", "gap", R"("data_format": "channels_last", "keepdims": false)",
                 Keras3Tensor("ln")),
      ",",
      Keras3Node("Dropout", "drop", R"("rate": 0.2, "seed": null, "noise_shape": null)", Keras3Tensor("gap"),
                 R"("training": false)"),
      ",",
      Keras3Node("Dense", "out", R"("units": 2, "activation": "softmax", "quantization_config": null)",
                 Keras3Tensor("drop")));
  const std::string expected = R"(
    layers { name: "image" input { shape: [8, 8, 3] } }
    layers { name: "a" inputs: "image" conv2d { filters: 3 kernel_size: [1, 1] strides: [1, 1] padding: VALID
             dilation_rate: [1, 1] activation: GELU use_bias: true kernel_initializer { kind: GLOROT_UNIFORM }
             bias_initializer { kind: ZEROS } groups: 1 } }
    layers { name: "gate" inputs: ["a", "image"] multiply {} }
    layers { name: "b" inputs: "gate" conv2d { filters: 4 kernel_size: 3 padding: VALID use_bias: false groups: 1 } }
    layers { name: "ln" inputs: "b" layer_normalization { epsilon: 0.001 center: true scale: true axis: -1 } }
    layers { name: "gap" inputs: "ln" global_average_pooling2d {} }
    layers { name: "drop" inputs: "gap" dropout { rate: 0.2 } }
    layers { name: "out" inputs: "drop" dense { units: 2 activation: SOFTMAX use_bias: true } })";
  const KerasModel read = Read(Keras3Functional(layers, "out"));
  ExpectLayers(read, expected);
  EXPECT_THAT(read.weight_paths, ElementsAre("layers/input_layer", "layers/conv2d", "layers/multiply",
                                             "layers/conv2d_1", "layers/layer_normalization",
                                             "layers/global_average_pooling2d", "layers/dropout", "layers/dense"));
  ExpectLayers(Read(Keras3Functional(layers, "out", R"(["image", 0, 0])")), expected);
}

TEST(KerasModel, OrdersLayersByTheirInputs) {
  const KerasModel read =
      Read(Keras3Functional(absl::StrCat(Keras3Node("Dense", "last", R"("units": 2)", Keras3Tensor("flat")), ",",
                                         Keras3Node("Flatten", "flat", "", Keras3Tensor("image")), ",",
                                         Keras3Input("image", "[null, 4, 4, 1]")),
                            "last"));
  ExpectLayers(read, R"(layers { name: "image" input { shape: [4, 4, 1] } }
                        layers { name: "flat" inputs: "image" flatten {} }
                        layers { name: "last" inputs: "flat" dense { units: 2 use_bias: true } })");
  EXPECT_THAT(read.weight_paths, ElementsAre("layers/input_layer", "layers/flatten", "layers/dense"));
}

TEST(KerasModel, ReadsAttention) {
  const std::string mha =
      R"("num_heads": 2, "key_dim": 4, "value_dim": 4, "dropout": 0.1, "use_bias": true, "output_shape": null,
    "attention_axes": null, "flash_attention": null, "seed": null)";
  const KerasModel read = Read(Keras3Functional(
      absl::StrCat(Keras3Input("image", "[null, 6, 8]"), ",",
                   Keras3Node("Dense", "v", R"("units": 8)", Keras3Tensor("image")), ",",
                   Keras3Node("MultiHeadAttention", "mha", mha, Keras3Tensor("image") + "," + Keras3Tensor("v"),
                              R"("use_causal_mask": true, "query_mask": null)")),
      "mha"));
  EXPECT_THAT(read.model.layers(2).inputs(), ElementsAre("image", "v"));
  EXPECT_TRUE(read.model.layers(2).multi_head_attention().use_causal_mask());
  EXPECT_EQ(read.model.layers(2).multi_head_attention().value_dim(), 4);
  const KerasModel old = Read(R"({"class_name": "Functional", "config": {"name": "n", "layers": [
    {"class_name": "InputLayer", "config": {"batch_input_shape": [null, 6, 8], "name": "x"}, "name": "x", "inbound_nodes": []},
    {"class_name": "Dense", "config": {"units": 8, "name": "v"}, "name": "v", "inbound_nodes": [[["x", 0, 0, {}]]]},
    {"class_name": "MultiHeadAttention", "config": {"num_heads": 2, "key_dim": 4, "name": "m", "query_shape": [null, 6, 8]},
     "name": "m", "inbound_nodes": [[["x", 0, 0, {"value": ["v", 0, 0], "key": ["x", 0, 0]}]]]}],
    "input_layers": [["x", 0, 0]], "output_layers": [["m", 0, 0]]}})");
  EXPECT_THAT(old.model.layers(2).inputs(), ElementsAre("x", "value=v", "key=x"));
}

// A model in a model is laid out flat; its weights stand below it in the file.
TEST(KerasModel, FlattensModelsInsideModels) {
  const std::string inner =
      Keras3Layer("Sequential", "base",
                  absl::StrCat(R"("layers": [)", Keras3Input("inner", "[null, 8, 8, 3]"), ",",
                               Keras3Layer("Conv2D", "c", R"("filters": 4, "kernel_size": 3)"), ",",
                               Keras3Layer("Conv2D", "d", R"("filters": 5, "kernel_size": 3)"), "]"));
  const KerasModel read =
      Read(absl::StrCat(R"({"module": "keras", "class_name": "Sequential", "config": {"name": "net", "layers": [)",
                        Keras3Input("image", "[null, 8, 8, 3]"), ",", inner, ",", Keras3Layer("Flatten", "f", ""), ",",
                        Keras3Layer("Dense", "out", R"("units": 2)"), "]}}"));
  std::vector<std::string> names;
  for (const v1::Layer& layer : read.model.layers()) names.push_back(layer.name());
  EXPECT_THAT(names, ElementsAre("image", "c", "d", "f", "out"));
  EXPECT_THAT(read.weight_paths, ElementsAre("", "layers/sequential/layers/conv2d", "layers/sequential/layers/conv2d_1",
                                             "layers/flatten", "layers/dense"));
}

// Transfer learning: a base whose model is frozen, one whose layers are, and a head.
TEST(KerasModel, ReadsWhatIsNotTrained) {
  const auto frozen = [](std::string layer) {
    return absl::StrReplaceAll(layer, {{R"("trainable": true)", R"("trainable": false)"}});
  };
  const std::string list = absl::StrCat(Keras3Input("inner", "[null, 8, 8, 3]"), ",",
                                        Keras3Layer("Conv2D", "c", R"("filters": 4, "kernel_size": 3)"), ",",
                                        Keras3Layer("BatchNormalization", "n", ""));
  const auto net = [](const std::string& layers) {
    return absl::StrCat(
        R"({"module": "keras", "class_name": "Sequential", "config": {"name": "net", "trainable": true, "layers": [)",
        Keras3Input("image", "[null, 8, 8, 3]"), ",", layers, ",", Keras3Layer("Flatten", "f", ""), ",",
        Keras3Layer("Dense", "out", R"("units": 2)"), "]}}");
  };
  const std::string base = Keras3Layer("Sequential", "base", absl::StrCat(R"("layers": [)", list, "]"));
  // As Keras writes it (the model and its layers), only the model, only the layers.
  for (const std::string& text :
       {frozen(base), absl::StrReplaceAll(frozen(base), {{R"("c", "trainable": false)", R"("c", "trainable": true)"}}),
        absl::StrReplaceAll(frozen(base), {{R"("base", "trainable": false)", R"("base", "trainable": true)"}})}) {
    const KerasModel read = Read(net(text));
    ASSERT_EQ(read.model.layers_size(), 5);
    for (const v1::Layer& layer : read.model.layers()) {
      const bool inner = layer.name() == "c" || layer.name() == "n";
      EXPECT_EQ(layer.has_trainable() && !layer.trainable(), inner) << layer.name();
    }
    EXPECT_EQ(Graph::Build(read.model)->trainable_parameters(), 6 * 6 * 4 * 2 + 2);
  }
  EXPECT_EQ(Graph::Build(Read(frozen(net(base))).model)->trainable_parameters(), 0);
}

// Keras' recipe of fine-tuning: base(x, training=False). All layers of the base are called so, those behind it are not.
TEST(KerasModel, ReadsWhatIsCalledAsInInference) {
  const std::string inner = absl::StrCat(Keras3Input("inner", "[null, 8, 8, 3]"), ",",
                                         Keras3Node("BatchNormalization", "bn", "", Keras3Tensor("inner")), ",",
                                         Keras3Node("Dropout", "drop", R"("rate": 0.5)", Keras3Tensor("bn")));
  const std::string base =
      absl::StrReplaceAll(Keras3Functional(inner, "drop", R"([["inner", 0, 0]])"), {{R"("net")", R"("base")"}});
  const auto model = [&](const std::string& training) {
    return Read(Keras3Functional(
        absl::StrCat(Keras3Input("image", "[null, 8, 8, 3]"), ",", base.substr(0, base.size() - 1),
                     R"(, "name": "base", "inbound_nodes": [{"args": [)", Keras3Tensor("image"), R"(], "kwargs": {)",
                     training, "}}]},", Keras3Node("BatchNormalization", "behind", "", Keras3Tensor("base")), ",",
                     Keras3Node("Flatten", "flat", "", Keras3Tensor("behind")), ",",
                     Keras3Node("Dense", "out", R"("units": 2)", Keras3Tensor("flat"))),
        "out"));
  };
  const auto inference = [](const KerasModel& read) {
    std::vector<std::string> names;
    for (const v1::Layer& layer : read.model.layers()) {
      EXPECT_FALSE(layer.training());
      if (layer.has_training()) names.push_back(layer.name());
    }
    return names;
  };
  EXPECT_THAT(inference(model(R"("training": null)")), ElementsAre());
  const KerasModel read = model(R"("training": false)");
  EXPECT_THAT(inference(read), ElementsAre("bn", "drop"));
  const Graph graph = Graph::Build(read.model).value();
  EXPECT_EQ(graph.variables()[0].kind, VariableKind::kTrainable);      // bn/gamma
  EXPECT_EQ(graph.variables()[2].kind, VariableKind::kFrozen);         // bn/moving_mean
  EXPECT_EQ(graph.variables()[6].kind, VariableKind::kMovingAverage);  // behind/moving_mean
}

TEST(KerasModel, ReadsInitializersWithTheirArguments) {
  const auto read = [](const std::string& name, const std::string& config) {
    const KerasModel model = Read(Keras2Sequential(KerasLayerText(
        "Dense", absl::StrCat(R"("name": "d", "units": 2, "kernel_initializer": )", Keras3Initializer(name, config)))));
    return model.model.layers(1).dense().kernel_initializer().ShortDebugString();
  };
  EXPECT_EQ(read("RandomNormal", R"("mean": 0.5, "stddev": 0.01, "seed": null)"),
            "kind: RANDOM_NORMAL mean: 0.5 stddev: 0.01");
  EXPECT_EQ(read("TruncatedNormal", R"("stddev": 0.02)"), "kind: TRUNCATED_NORMAL stddev: 0.02");
  EXPECT_EQ(read("RandomUniform", R"("minval": -1.0, "maxval": 1, "seed": 3)"),
            "kind: RANDOM_UNIFORM minval: -1 maxval: 1");
  EXPECT_EQ(read("VarianceScaling", R"("scale": 0.5, "mode": "fan_out", "distribution": "untruncated_normal")"),
            "kind: VARIANCE_SCALING scale: 0.5 mode: FAN_OUT distribution: DISTRIBUTION_UNTRUNCATED_NORMAL");
  EXPECT_EQ(read("VarianceScaling", R"("scale": 2.0, "mode": "fan_avg", "distribution": "normal")"),
            "kind: VARIANCE_SCALING scale: 2 mode: FAN_AVG distribution: DISTRIBUTION_TRUNCATED_NORMAL");
  EXPECT_EQ(read("VarianceScaling", ""),
            "kind: VARIANCE_SCALING mode: FAN_IN distribution: DISTRIBUTION_TRUNCATED_NORMAL");
  EXPECT_EQ(read("Constant", R"("value": 0.25)"), "kind: CONSTANT value: 0.25");
}

// The tutorials' `data_augmentation = keras.Sequential([...])`, and the layers themselves at the head.
TEST(KerasModel, TakesAugmentationFromTheHead) {
  const std::string augmentation = Keras3Layer(
      "Sequential", "data_augmentation",
      absl::StrCat(
          R"("layers": [)",
          Keras3Layer("RandomFlip", "flip", R"("seed": null, "mode": "horizontal", "data_format": "channels_last")"),
          ",",
          Keras3Layer("RandomRotation", "rotate", R"("factor": [-0.1, 0.1], "fill_mode": "reflect", "fill_value": 0.0,
        "interpolation": "bilinear", "seed": null, "data_format": "channels_last")"),
          "]"));
  const std::string json = absl::StrCat(
      R"({"module": "keras", "class_name": "Sequential", "config": {"name": "net", "layers": [)",
      Keras3Input("image", "[null, 8, 8, 3]"), ",", augmentation, ",",
      Keras3Layer("Rescaling", "scale", R"("scale": 0.5, "offset": 0)"), ",",
      Keras3Layer("RandomZoom", "zoom", R"("height_factor": 0.2, "width_factor": null, "fill_mode": "nearest")"), ",",
      Keras3Layer("Flatten", "f", ""), ",", Keras3Layer("Dense", "out", R"("units": 2)"), "]}}");
  const KerasModel read = Read(json);
  ExpectLayers(read, R"(layers { name: "image" input { shape: [8, 8, 3] } }
                        layers { name: "scale" inputs: "image" rescaling { scale: 0.5 } }
                        layers { name: "f" inputs: "scale" flatten {} }
                        layers { name: "out" inputs: "f" dense { units: 2 use_bias: true } })");
  ASSERT_EQ(read.data.augmentation_size(), 3);
  EXPECT_EQ(read.data.augmentation(0).random_flip().mode(), v1::RandomFlip::HORIZONTAL);
  EXPECT_THAT(read.data.augmentation(1).random_rotation().factor(), ElementsAre(-0.1f, 0.1f));
  EXPECT_EQ(read.data.augmentation(2).random_zoom().fill_mode(), v1::NEAREST_PIXEL);

  v1::JobSpec spec;
  spec.mutable_model()->set_keras_json(json);
  ASSERT_TRUE(ExpandJob(&spec).ok());
  EXPECT_EQ(spec.model().keras_json(), "");
  EXPECT_EQ(spec.model().layers_size(), 4);
  EXPECT_EQ(spec.data().augmentation_size(), 3);
}

TEST(KerasModel, ExpandsOnce) {
  v1::Model model = FromText<v1::Model>("name: 'mine' ready_made { name: 'lenet' classes: 4 }");
  ASSERT_TRUE(ExpandModel(&model).ok());
  EXPECT_EQ(model.name(), "mine");
  EXPECT_FALSE(model.has_ready_made());
  EXPECT_EQ(Graph::Build(model)->output().output, (Shape{4}));
  const v1::Model before = model;
  ASSERT_TRUE(ExpandModel(&model).ok());
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(model, before));
}

// keras.src.utils.naming.to_snake_case, of which the file's containers are named.
TEST(KerasModel, NamesClassesAsKerasDoes) {
  for (const auto& [name, snake] : std::initializer_list<std::pair<const char*, const char*>>{
           {"Conv2D", "conv2d"},
           {"Conv2DTranspose", "conv2d_transpose"},
           {"BatchNormalization", "batch_normalization"},
           {"MaxPooling2D", "max_pooling2d"},
           {"GlobalAveragePooling2D", "global_average_pooling2d"},
           {"ReLU", "re_lu"},
           {"LeakyReLU", "leaky_re_lu"},
           {"ELU", "elu"},
           {"DepthwiseConv2D", "depthwise_conv2d"},
           {"InputLayer", "input_layer"},
           {"UpSampling2D", "up_sampling2d"},
           {"MultiHeadAttention", "multi_head_attention"},
           {"Dense", "dense"}}) {
    EXPECT_EQ(KerasSnakeCase(name), snake);
  }
}

}  // namespace
}  // namespace cairn
