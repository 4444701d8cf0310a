// Goal: what Cairn does not support of a Keras model is named with the layer and the option. Nothing is ignored
// silently.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/formats/expand_model.h"
#include "tests/unit/formats/keras_text.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

std::string ErrorOf(const std::string& json) {
  v1::JobSpec spec;
  spec.mutable_model()->set_keras_json(json);
  return std::string(ExpandJob(&spec).message());
}

struct BadLayer {
  const char *type, *config;
  const char* error;  // behind `model.keras_json: layer "x" (TYPE): `
};

constexpr BadLayer kBadLayers[] = {
    {"Conv2D", R"("filters": 4, "kernel_size": 3, "data_format": "channels_first")",
     "data_format: \"channels_first\" is not supported; build the model with channels_last"},
    {"Conv2D", R"("filters": 4, "kernel_size": 3, "groups": "two")",
     "groups: \"two\" is not a whole number within 32 bits"},
    {"DepthwiseConv2D", R"("kernel_size": 3, "groups": 2)", "groups: 2 is not supported; use 1"},
    {"Conv2D", R"("filters": 4, "kernel_size": 3, "padding": "causal")",
     "padding: \"causal\" is not supported; use valid or same"},
    {"Conv2D",
     R"("filters": 4, "kernel_size": 3, "kernel_regularizer": {"class_name": "OrthogonalRegularizer", "config": {"factor": 0.01, "mode": "both"}})",
     "kernel_regularizer: OrthogonalRegularizer is not supported; use L1, L2, L1L2 or OrthogonalRegularizer with "
     "finite numbers from 0, or leave it out"},
    {"Conv2D", R"("filters": 4, "kernel_size": 3, "bias_regularizer": {"class_name": "L2", "config": {"l2": -0.01}})",
     "bias_regularizer: L2 is not supported; use L1, L2, L1L2 or OrthogonalRegularizer with finite numbers from 0, or "
     "leave it out"},
    {"Dense", R"("units": 4, "kernel_regularizer": {"class_name": "L1", "config": {"l2": 0.01}})",
     "kernel_regularizer: L1 is not supported; use L1, L2, L1L2 or OrthogonalRegularizer with finite numbers from 0, "
     "or leave it out"},
    {"Dense", R"("units": 4, "kernel_regularizer": {"class_name": "L1L2", "config": {"l1": "x"}})",
     "kernel_regularizer: L1L2 is not supported; use L1, L2, L1L2 or OrthogonalRegularizer with finite numbers from 0, "
     "or leave it out"},
    {"Dense", R"("units": 4, "kernel_regularizer": "l2")",
     "kernel_regularizer: \"l2\" is not supported; use L1, L2, L1L2 or OrthogonalRegularizer with finite numbers from "
     "0, or leave it out"},
    {"Dense", R"("units": 4, "kernel_regularizer": {"class_name": "L2", "config": {"l2": 1e300}})",
     "kernel_regularizer: L2 is not supported; use L1, L2, L1L2 or OrthogonalRegularizer with finite numbers from 0, "
     "or leave it out"},
    {"Embedding",
     R"("input_dim": 4, "output_dim": 2, "activity_regularizer": {"module": "keras.regularizers", "class_name": "L1", "config": {"l1": 0.01}})",
     "activity_regularizer: L1 is not supported; leave it out, or regularize the kernel"},
    {"MultiHeadAttention",
     R"("num_heads": 1, "key_dim": 2, "kernel_constraint": {"class_name": "MaxNorm", "config": {"max_value": 2}})",
     "kernel_constraint: MaxNorm is not supported; leave it out"},
    {"Conv2D", R"("filters": 4, "kernel_size": 3, "kernel_constraint": {"class_name": "SoftConstraint", "config": {}})",
     "kernel_constraint: SoftConstraint is not supported; use MaxNorm, NonNeg, UnitNorm, MinMaxNorm or "
     "RadialConstraint with numbers "
     "and "
     "axes, or leave it out"},
    {"Dense", R"("units": 4, "kernel_constraint": {"class_name": "MaxNorm", "config": {"max_value": "two"}})",
     "kernel_constraint: MaxNorm(max_value=\"two\") is not supported; use MaxNorm, NonNeg, UnitNorm, MinMaxNorm or "
     "RadialConstraint with "
     "numbers and axes, "
     "or "
     "leave it out"},
    {"Dense", R"("units": 4, "bias_constraint": {"class_name": "UnitNorm", "config": {"axis": []}})",
     "bias_constraint: UnitNorm(axis=[]) has a norm along no axis; name one in axis, such as 0, or leave axis out"},
    {"Dense", R"("units": 4, "kernel_constraint": {"class_name": "MinMaxNorm", "config": {"axis": [], "rate": 0.5}})",
     "kernel_constraint: MinMaxNorm(axis=[], rate=0.5) has a norm along no axis; name one in axis, such as 0, or leave "
     "axis out"},
    {"Dense", R"("units": 4, "bias_constraint": {"class_name": "UnitNorm", "config": {"axis": [0, "x"]}})",
     "bias_constraint: UnitNorm(axis=[0,\"x\"]) is not supported; use MaxNorm, NonNeg, UnitNorm, MinMaxNorm or "
     "RadialConstraint with "
     "numbers and axes, "
     "or "
     "leave it out"},
    {"Dense", R"("units": 4, "activity_regularizer": {"class_name": "OrthogonalRegularizer", "config": {}})",
     "activity_regularizer: OrthogonalRegularizer is for kernels; use L1 or L2 there"},
    {"Dense", R"("units": 4, "activity_regularizer": {"class_name": "L1", "config": {"l1": -1}})",
     "activity_regularizer: L1 is not supported; use L1, L2, L1L2 or OrthogonalRegularizer with finite numbers from 0, "
     "or "
     "leave it out"},
    {"Dense", R"("units": 4, "trainable": "no")", "trainable: \"no\" is neither true nor false"},
    {"Dense", R"("units": 4, "dtype": "float16")",
     "dtype: \"float16\" is not supported; use float32 or a mixed policy, whose variables are float32"},
    {"Dense",
     R"("units": 4, "dtype": {"module": "keras", "class_name": "QuantizedDTypePolicy", "config": {"name": "int8_from_float32"}})",
     "dtype: \"int8_from_float32\" is not supported; use float32 or a mixed policy, whose variables are float32"},
    {"Dense", R"("units": 4, "lora_rank": 8)", "lora_rank: 8 is not supported; leave it out"},
    {"Dense", R"("units": "four")", "units: \"four\" is not a whole number within 32 bits"},
    {"Dense", R"("units": 1e20)", "units: 1e+20 is not a whole number within 32 bits"},
    {"Dense", R"("units": 4, "use_bias": 1)", "use_bias: 1 is neither true nor false"},
    {"Dense", R"("units": 4, "activation": "mine")",
     "activation: \"mine\" is not supported; use linear, relu, relu6, leaky_relu, sigmoid, tanh, softmax, elu, gelu, "
     "silu or "
     "softplus, say"},
    {"Dense", R"("units": 4, "kernel_initializer": {"class_name": "STFT", "config": {"side": "real"}})",
     "kernel_initializer: STFT is not supported; use GlorotUniform, say"},
    {"Dense", R"("units": 4, "kernel_initializer": {"class_name": "Orthogonal", "config": {"gain": "large"}})",
     "kernel_initializer: Orthogonal: gain \"large\" is not a number"},
    {"Dense",
     R"("units": 4, "kernel_initializer": {"class_name": "RandomNormal", "config": {"mean": 0.0, "stddev": "small"}})",
     "kernel_initializer: RandomNormal: stddev \"small\" is not a number"},
    {"Dense", R"("units": 4, "bias_initializer": {"class_name": "RandomUniform", "config": {"minval": [0, 1]}})",
     "bias_initializer: RandomUniform: minval [0,1] is not a number"},
    {"Dense",
     R"("units": 4, "bias_initializer": {"class_name": "Constant", "config": {"value": [0.1, 0.2, 0.3, 0.4]}})",
     "bias_initializer: Constant: value [0.1,0.2,0.3,0.4] is not a number"},
    {"Dense", R"("units": 4, "bias_initializer": {"class_name": "TruncatedNormal", "config": {"mean": 1e300}})",
     "bias_initializer: TruncatedNormal: mean 1e+300 is not a number"},
    {"Dense", R"("units": 4, "kernel_initializer": {"class_name": "VarianceScaling", "config": {"scale": true}})",
     "kernel_initializer: VarianceScaling: scale true is not a number"},
    {"Dense",
     R"("units": 4, "kernel_initializer": {"class_name": "VarianceScaling", "config": {"scale": 2.0, "mode": "fan_all"}})",
     "kernel_initializer: VarianceScaling: mode \"fan_all\" is not known"},
    {"Dense", R"("units": 4, "kernel_initializer": {"class_name": "VarianceScaling", "config": {"distribution": 3}})",
     "kernel_initializer: VarianceScaling: distribution 3 is not known"},
    {"Conv1D", R"("filters": 4, "kernel_size": [3], "padding": "full")",
     "padding: \"full\" is not supported; use valid, same or causal"},
    {"Conv2DTranspose", R"("filters": 4, "kernel_size": 3, "groups": 2)", "groups: 2 is not supported; use 1"},
    {"Embedding", R"("input_dim": 4, "output_dim": 3, "mask_zero": 1)", "mask_zero: 1 is neither true nor false"},
    {"Embedding", R"("input_dim": 4, "output_dim": 3, "sparse": true)", "sparse: true is not supported; leave it out"},
    {"BatchNormalization", R"("axis": 1)", "axis: 1 is not supported; only the last axis is, -1"},
    {"BatchNormalization", R"("axis": [1, 2])", "axis: [1,2] is not supported; only the last axis is, -1"},
    {"BatchNormalization", R"("synchronized": true)",
     "synchronized: true is not supported; each replica has the statistics of its own batch"},
    {"LayerNormalization", R"("rms_scaling": true)", "rms_scaling: true is not supported; leave it out"},
    {"ReLU", R"("max_value": 3.0, "negative_slope": 0.1)",
     "negative_slope: together with max_value or threshold it is not supported; leave it out"},
    {"Softmax", R"("axis": 0)", "axis: 0 is the batch; name an axis after it, from 1, or -1 for the last one"},
    {"Dropout", R"("rate": 0.5, "noise_shape": [1, 1])",
     "noise_shape: [1,1] has one decision for all examples of a batch, which is not supported; write null for the "
     "batch"},
    {"Dropout", R"("rate": 0.5, "noise_shape": "all")", "noise_shape: \"all\" is not a list of numbers and nulls"},
    {"Dropout", R"("rate": 0.5, "seed": -1)", "seed: -1 is not a whole number from 0"},
    {"Normalization", R"("axis": -1, "mean": "a")", "mean: \"a\" is neither a number nor a list"},
    {"GlobalAveragePooling2D", R"("keepdims": 2)", "keepdims: 2 is neither true nor false"},
    {"UpSampling2D", R"("size": 2, "interpolation": "bicubic")",
     "interpolation: \"bicubic\" is not supported; use nearest or bilinear"},
    {"ZeroPadding2D", R"("padding": [[1, "a"], [0, 0]])",
     "padding: [[1,\"a\"],[0,0]] is not one number, [h, w] or [[top, bottom], [left, right]]"},
    {"Rescaling", R"("scale": [0.1, "a"])", "scale: [0.1,\"a\"] is neither a number nor a list"},
    {"MultiHeadAttention", R"("num_heads": 2, "key_dim": 8, "output_shape": [4, 5])",
     "output_shape: more than one number is not supported; give one"},
    {"RandomRotation", R"("factor": 0.1, "fill_mode": "mirror")",
     "fill_mode: \"mirror\" is not supported; use reflect, wrap, constant or nearest"},
    {"RandomBrightness", R"("factor": 0.1, "value_range": [0, 1])",
     "value_range: [0,1] is not supported; use [0, 255]"},
};

TEST(KerasErrors, NameTheLayerAndTheOption) {
  for (const BadLayer& bad : kBadLayers) {
    SCOPED_TRACE(std::string(bad.type) + " " + bad.config);
    const std::string layer = KerasLayerText(bad.type, std::string(R"("name": "x", )") + bad.config);
    EXPECT_EQ(ErrorOf(Keras2Sequential(layer)),
              std::string("model.keras_json: layer \"x\" (") + bad.type + "): " + bad.error);
  }
}

struct BadModel {
  std::string json, error;  // the error behind "model.keras_json: "
};

std::string Nested(int depth) {
  std::string text;
  for (int i = 0; i < depth; ++i) text += "[";
  return text;
}

// A Functional model of an input, a Dense called "d" with these inbound_nodes, and "e" behind it.
std::string Functional(const std::string& inbound_nodes, const std::string& inputs = R"([["x", 0, 0]])",
                       const std::string& outputs = R"([["e", 0, 0]])") {
  return R"({"class_name": "Functional", "config": {"name": "n", "layers": [
    {"class_name": "InputLayer", "config": {"batch_input_shape": [null, 8], "name": "x"}, "name": "x", "inbound_nodes": []},
    {"class_name": "Dense", "config": {"units": 2, "name": "d"}, "name": "d", "inbound_nodes": )" +
         inbound_nodes + R"(},
    {"class_name": "Dense", "config": {"units": 2, "name": "e"}, "name": "e", "inbound_nodes": [[["d", 0, 0, {}]]]}],
    "input_layers": )" +
         inputs + R"(, "output_layers": )" + outputs + "}}";
}

std::vector<BadModel> BadModels() {
  const std::string dense = KerasLayerText("Dense", R"("name": "d", "units": 2)");
  return {
      {"no JSON", "not JSON; give what model.to_json() returned, whole"},
      {R"({"class_name": "Sequential", "config": {"layers": [)", "not JSON; give what model.to_json() returned, whole"},
      {Nested(100), "nested more than 64 deep; is this a Keras model?"},
      {std::string((16 << 20) + 1, ' '), "longer than 16777216 bytes; is this what model.to_json() returned?"},
      {"[1, 2]", "class_name or config is missing; give what model.to_json() returned"},
      {R"({"class_name": "MyModel", "config": {}})",
       "class_name: \"MyModel\" is neither Sequential nor Functional; a subclassed model has no description of its "
       "layers; build it of layers, or train it as a program of your own (docs/programs.md)"},
      {R"({"class_name": "Sequential", "config": {"name": "n"}})", "config.layers: missing or empty"},
      {R"({"class_name": "Sequential", "config": {"layers": []}})", "config.layers: missing or empty"},
      {R"({"class_name": "Sequential", "config": {"layers": [3]}})",
       "config.layers[0]: class_name or config is missing"},
      {R"({"class_name": "Sequential", "config": {"layers": [)" + dense + "]}}",
       "layer \"d\": the model has no input shape; begin it with keras.Input(shape=...)"},
      {R"({"class_name": "Sequential", "config": {"layers": [)" +
           KerasLayerText("InputLayer", R"("name": "i", "batch_shape": [null, null, 3])") + "]}}",
       "layer \"i\" (InputLayer): the input's shape [null,null,3] is open; say data.image_height and "
       "data.image_width, or data.tfrecord.shape, submit the job where its data is, show the model with --input-shape, "
       "or build it with a shape such as (28, 28, 1)"},
      {R"({"class_name": "Sequential", "config": {"layers": [)" +
           KerasLayerText("InputLayer", R"("name": "i", "batch_shape": [null], "dtype": "bool")") + "]}}",
       "layer \"i\" (InputLayer): dtype: \"bool\" is not supported; use float32, or string for texts"},
      {Keras2Sequential(KerasLayerText("InputLayer", R"("name": "j", "batch_shape": [null, 3])")),
       "layer \"j\": a second InputLayer; a Sequential has one input"},
      {Keras2Sequential(
           R"({"module": "my_layers", "class_name": "Swirl", "config": {"name": "s"}, "registered_name": "my>Swirl"})"),
       "layer \"s\": my>Swirl is a class of your own, whose Python code no worker can run; use layers of Keras, or "
       "train the model as a "
       "program of your own (docs/programs.md)"},
      {Keras2Sequential(R"({"module": "keras.src.ops.numpy", "class_name": "Add", "config": {"name": "add"}})"),
       "layer \"add\": Add is an operation on tensors (as x + y), which only a Functional model has"},
      {Keras2Sequential(KerasLayerText("Conv2D", R"("name": "c", "filters": 2, "kernel_size": 3)") + "," +
                        KerasLayerText("RandomFlip", R"("name": "flip")")),
       "layer \"flip\" (RandomFlip): an augmentation is supported only right after the input; move it there, or use "
       "data.augmentation"},
      {Keras2Sequential(KerasLayerText("Rescaling", R"("name": "r", "scale": 0.1)") + "," +
                        KerasLayerText("RandomContrast", R"("name": "contrast", "factor": 0.2)")),
       "layer \"contrast\" (RandomContrast): it follows a Rescaling, but augmentation works on the data before "
       "that; move it "
       "before the Rescaling"},
      {Keras2Sequential(KerasLayerText("RandomCrop", R"("name": "crop", "height": 30, "width": 20)")),
       "layer \"crop\" (RandomCrop): 30 x 20 is not part of its input, 28 x 28; give it a height and a width within "
       "that"},
      {Keras2Sequential(KerasLayerText("RandomCrop", R"("name": "crop", "height": 24)")),
       "layer \"crop\" (RandomCrop): 24 x 0 is not part of its input, 28 x 28; give it a height and a width within "
       "that"},
      {Keras2Sequential(KerasLayerText("RandomCrop", R"("name": "crop", "height": 24, "width": 24)") + "," +
                        KerasLayerText("RandomCrop", R"("name": "again", "height": 20, "width": 24)")),
       "layer \"again\" (RandomCrop): a second one that makes pictures smaller; leave one of them out"},
      {Keras3Functional(absl::StrCat(Keras3Input("image", "[null, 8, 8, 3]"), ",",
                                     Keras3Node("RandomCrop", "crop", R"("height": 4, "width": 4)",
                                                Keras3Tensor("image"), R"("training": false)")),
                        "crop"),
       "layer \"crop\" (RandomCrop): it is called with training=false; leave that out, or crop the data before"},
      {Functional(R"([[["x", 0, 0, {}]], [["d", 1, 0, {}]]])"), "layer \"d (call 1)\": its inputs lead back to itself"},
      {Functional(R"([[["x", 1, 0, {}]]])"), "layer \"d\": its input \"x (call 1)\" is not a layer of the model"},
      {Functional(R"([[["x", -1, 0, {}]]])"),
       "layer \"d\" (Dense): its input [\"x\",-1,0,{}] is not a call of a layer"},
      {Functional(R"([[["x", 0, 1, {}]]])"),
       "layer \"d\" (Dense): it takes a second output of \"x\"; a layer has one output"},
      {Functional("[]"), "layer \"d\" (Dense): it takes no input"},
      {Functional("3"), "layer \"d\" (Dense): its inbound_nodes are not a list"},
      {Functional(R"([[["y", 0, 0, {}]]])"), "layer \"d\": its input \"y\" is not a layer of the model"},
      {Functional(R"([[["e", 0, 0, {}]]])"), "layer \"d\": its inputs lead back to itself"},
      {Functional(R"([[["x", 0, 0, {"mask": ["x", 0, 0]}]]])"),
       "layer \"d\" (Dense): it is called with a tensor as mask, which is not supported; Cairn has no masks; leave it "
       "out"},
      {Keras3Functional(absl::StrCat(Keras3Input("image", "[null, 6, 8]"), ",",
                                     Keras3Node("MultiHeadAttention", "mha", R"("num_heads": 2, "key_dim": 4)",
                                                Keras3Tensor("image") + "," + Keras3Tensor("image"),
                                                R"("attention_mask": )" + Keras3Tensor("image"))),
                        "mha"),
       "layer \"mha\" (MultiHeadAttention): it is called with a tensor as attention_mask, which is not supported; "
       "Cairn has no masks; "
       "leave it out"},
      {Functional(R"([{"args": [2.5], "kwargs": {}}])"),
       "layer \"d\" (Dense): it is called with 2.5, which is not a layer's output"},
      {Functional(R"([[["x", 0, 0, {"training": true}]]])"),
       "layer \"d\" (Dense): it is called with training=true, which is not supported; it would compute as in training "
       "when it is "
       "evaluated, too; leave it out"},
      {Functional(R"([[["x", 0, 0, {}]]])", R"([["x", 0, 0], ["y", 0, 0]])"),
       "config.input_layers: \"y\" is not an InputLayer of the model"},
      {Functional(R"([[["x", 0, 0, {}]]])", R"([["x", 0, 0]])", R"([["d", 0, 0], ["f", 0, 0]])"),
       "config.output_layers: \"f\" is not a layer of the model"},
      {Functional(R"([[["x", 0, 0, {}]]])", R"([["x", 0, 0]])", R"([["d", 0, 1]])"),
       "config.output_layers: \"d (output 1)\" is not a layer of the model"},
      {Functional(R"([[["x", 0, 0, {}]]])", R"([["x", 0, 0]])", R"([["d", 0, 0]])"),
       "config.output_layers: \"d\" is the output, but \"e\" takes something of the model too; remove what does not "
       "lead to the "
       "output"},
  };
}

TEST(KerasErrors, NameWhatIsWrongWithTheModel) {
  for (const BadModel& bad : BadModels()) {
    SCOPED_TRACE(bad.json.substr(0, 300));
    EXPECT_EQ(ErrorOf(bad.json), "model.keras_json: " + bad.error);
  }
}

TEST(KerasErrors, NameALayerThatCairnDoesNotHave) {
  EXPECT_EQ(ErrorOf(Keras2Sequential(KerasLayerText("Convolve2D", R"("name": "c", "filters": 2)"))),
            "model.keras_json: layer \"c\": Convolve2D is not supported (Conv2D is); use layers that docs/keras.md "
            "lists, or train the model as a program of your own (docs/programs.md)");
  EXPECT_EQ(ErrorOf(Keras2Sequential(KerasLayerText("Qqqqqqqqqqqqqqqqqqqq", R"("name": "q")"))),
            "model.keras_json: layer \"q\": Qqqqqqqqqqqqqqqqqqqq is not supported; use layers that docs/keras.md "
            "lists, or train the model as a program of your own (docs/programs.md)");
}

TEST(KerasErrors, NameFieldsThatExcludeEachOther) {
  v1::JobSpec spec = FromText<v1::JobSpec>("model { ready_made { name: 'lenet' } keras_json: '{}' }");
  EXPECT_EQ(ExpandJob(&spec).message(),
            "model: more than one of layers, ready_made, keras_json and external is given; leave all but one out");
  spec = FromText<v1::JobSpec>("model { layers {} ready_made { name: 'lenet' } }");
  EXPECT_EQ(ExpandJob(&spec).message(),
            "model: more than one of layers, ready_made, keras_json and external is given; leave all but one out");
  spec = FromText<v1::JobSpec>("data { augmentation { random_flip {} } }");
  spec.mutable_model()->set_keras_json(Keras2Sequential(KerasLayerText("RandomFlip", R"("name": "f")") + "," +
                                                        KerasLayerText("Dense", R"("name": "d", "units": 2)")));
  EXPECT_EQ(ExpandJob(&spec).message(),
            "data.augmentation: the Keras model begins with augmentation of its own; leave one of the two out");
  spec = FromText<v1::JobSpec>("data { image_height: 26 image_width: 28 }");
  spec.mutable_model()->set_keras_json(
      Keras2Sequential(KerasLayerText("RandomCrop", R"("name": "c", "height": 24, "width": 24)")));
  EXPECT_EQ(
      ExpandJob(&spec).message(),
      "data.image_height: 26 x 28, but the Keras model's input is 28 x 28; leave image_height and image_width out");
  v1::Model model;
  model.set_keras_json(Keras2Sequential(KerasLayerText("RandomFlip", R"("name": "f")")));
  EXPECT_EQ(std::string(ExpandModel(&model).message()),
            "model.keras_json: it begins with augmentation, which belongs to the data; give it as data.augmentation");
}

}  // namespace
}  // namespace cairn
