// Goal: every bad model is refused with INVALID_ARGUMENT and a sentence that names the layer and what to do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/limits.h"
#include "common/model/graph.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

struct BadModel {
  std::string model, message;
};

const std::string kImage = "layers { input { shape: [6, 6, 3] } } ";

void ExpectRefused(const v1::Model& model, const std::string& message) {
  const absl::StatusOr<Graph> graph = Graph::Build(model);
  ASSERT_FALSE(graph.ok());
  EXPECT_EQ(graph.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(graph.status().message()), testing::HasSubstr(message));
}

void ExpectRefused(const std::vector<BadModel>& cases) {
  for (const BadModel& c : cases) {
    SCOPED_TRACE(c.model);
    ExpectRefused(FromText<v1::Model>(c.model), c.message);
  }
}

TEST(GraphErrors, Structure) {
  ExpectRefused({
      {"", "model.layers: empty; begin with an input layer"},
      {"layers { dense { units: 3 } }", "model.layers[0]: the first layer is a dense; put an input layer before it"},
      {kImage + "layers { name: 'b' input { shape: 3 } } layers { flatten {} }",
       "layer \"input_layer\": its output does not reach the model's output \"flatten\""},
      {"layers { input { shape: 4 } } layers { name: 'a' dense { units: 3 } } layers { name: 'b' shares: 'a' }",
       "layer \"b\": shares \"a/kernel\" [4,3], but for its own input that would be [3,3]; give both calls"},
      {"layers { input { shape: 4 } } layers { name: 'b' shares: 'a' } layers { name: 'a' dense { units: 4 } }",
       "layer \"b\": shares: \"a\" is not a layer before it"},
      {"layers { name: 'x' input { shape: 4 } } layers { name: 'b' shares: 'x' }",
       "layer \"b\": shares: an input has no variables"},
      {"layers { input { shape: 4 } } layers { name: 'a' dense { units: 4 } } layers { name: 'b' shares: 'a' dense { "
       "units: "
       "4 use_bias: false } }",
       "layer \"b\": its fields differ from those of \"a\", whose variables it shares; leave its type out"},
      {"layers { input { shape: 4 } } layers { name: 'a' dense { units: 4 } } layers { name: 'b' shares: 'a' "
       "trainable: "
       "false }",
       "layer \"b\": trainable differs from that of \"a\", whose variables it shares; leave it out"},
      {"layers { input { shape: 4 } } layers { name: 'a' batch_normalization {} } layers { name: 'b' shares: 'a' }",
       "layer \"b\": shares \"a/moving_mean\", a moving average, which two calls would update twice a step"},
      {"layers { input { shape: 4 } } layers { name: 'a' dense { units: 4 } } outputs: 'b'",
       "model.outputs: \"b\" is not a layer of the model"},
      {"layers { input { shape: 4 } } layers { name: 'a' dense { units: 4 } } outputs: ['a', 'a']",
       "model.outputs: \"a\" twice; name it once"},
      {"layers { input { shape: 4 } } layers { name: 'a' dense { units: 4 } } layers { dense { units: 4 } } outputs: "
       "'a'",
       "layer \"dense\": its output does not reach the model's output \"a\""},
      {kImage + "layers { name: \"x\" }", "model.layers[1]: layer \"x\" has no type; set one, such as conv2d"},
      {kImage + "layers {}", "model.layers[1]: layer has no type"},
      {"layers { inputs: \"a\" input { shape: 3 } }", "layer \"input_layer\": an input layer takes no inputs"},
      {kImage + "layers { name: \"a\" flatten {} } layers { name: \"a\" dense { units: 3 } }",
       "model.layers[2]: layer \"a\" has the name of model.layers[1]; give each layer a name of its own"},
      {kImage + "layers { name: \"a\\nb\" flatten {} }",
       "model.layers[1]: name has more than 512 bytes, or a line break or another control character, or is not UTF-8"},
      {kImage + "layers { name: \"a\\177\" flatten {} }", "use letters, digits"},
      {kImage + "layers { name: \"key=a\" flatten {} }",
       "model.layers[1]: name \"key=a\" begins with \"key=\", which names an input of a multi_head_attention"},
      {"layers { input { shape: [2, 4] } } layers { name: \"a\" inputs: [\"input_layer\", \"input_layer\"] "
       "multi_head_attention { num_heads: 1 key_dim: 2 } } layers { name: \"a/query\" dense { units: 2 } }",
       "layer \"a/query\": its variable \"a/query/kernel\" has the name of one of layer \"a\""},
      {kImage +
           "layers { name: \"conv\" conv2d { filters: 1 kernel_size: 1 } } layers { inputs: \"conv1\" flatten {} }",
       "layer \"flatten\": its input \"conv1\" is not a layer of the model; did you mean \"conv\"?"},
      {kImage + "layers { inputs: \"zzzzzz\" flatten {} }",
       "its input \"zzzzzz\" is not a layer of the model; the layer before this one is \"input_layer\""},
      {kImage + "layers { inputs: \"dense\" flatten {} } layers { dense { units: 1 } }",
       "layer \"flatten\": its input \"dense\" comes later in the list; move \"dense\" before this layer"},
      {kImage + "layers { name: \"f\" inputs: \"f\" flatten {} }", "layer \"f\": names itself as its input"},
      {kImage + "layers { inputs: [\"input_layer\", \"input_layer\"] flatten {} }",
       "layer \"flatten\": has 2 inputs, but a flatten takes one; join them by add or concatenate"},
      {kImage + "layers { add {} }", "layer \"add\": an add joins two or more layers; name them"},
      {kImage + "layers { inputs: \"input_layer\" concatenate {} }", "a concatenate joins two or more layers"},
      {kImage + "layers { name: \"lost\" conv2d { filters: 1 kernel_size: 1 } } layers { inputs: \"input_layer\" "
                "flatten {} }",
       "layer \"lost\": its output does not reach the model's output \"flatten\"; use it as an input or remove it"},
      {kImage + "layers { dense { units: 1 } } trainable_layers: \"fc\"",
       "model.trainable_layers: \"fc\" is not a layer of the model; the last one is \"dense\""},
      {kImage + "layers { trainable: false dense { units: 1 } } trainable_layers: \"dense\"",
       "layer \"dense\": trainable: false, but model.trainable_layers names it; leave one of the two out"},
      {kImage + "layers { dense { units: 1 kernel_regularizer { l2: -1 } } }",
       "layer \"dense\": kernel_regularizer.l2 -1 is not a number from 0; use one such as 0.0001"},
      {kImage + "layers { dense { units: 1 bias_regularizer { l1: nan } } }",
       "layer \"dense\": bias_regularizer.l1 nan is not a number from 0; use one such as 0.0001"},
      {kImage + "layers { batch_normalization { gamma_regularizer { } } }",
       "layer \"batch_normalization\": gamma_regularizer: none of l1, l2 and orthogonal_factor is above 0; give one, "
       "as { l2: 0.0001 }, "
       "or leave it out"},
  });
}

TEST(GraphErrors, Fields) {
  ExpectRefused({
      {"layers { input {} }", "layer \"input_layer\": shape is missing; give it without the batch dimension"},
      {"layers { input { shape: [2, 2, 2, 2, 2, 2] } }", "shape has 6 dimensions"},
      {"layers { input { shape: [28, 0, 1] } }", "shape [28,0,1] has a dimension that is not positive"},
      {"layers { input { shape: -5 } }", "shape [-5] has a dimension that is not positive"},
      {kImage + "layers { rescaling {} }", "layer \"rescaling\": scale is missing, 0 or not finite"},
      {kImage + "layers { rescaling { scale: nan } }", "scale is missing, 0 or not finite"},
      {kImage + "layers { rescaling { scale: 1 offset: inf } }", "offset is not finite"},
      {kImage + "layers { conv2d { filters: 2 } }", "layer \"conv2d\": kernel_size is missing; give one number"},
      {kImage + "layers { conv2d { kernel_size: 3 } }", "filters 0 is not positive; use a number such as 32"},
      {kImage + "layers { conv2d { filters: 2 kernel_size: [3, 0] } }", "kernel_size 0 is not positive"},
      {kImage + "layers { conv2d { filters: 2 kernel_size: [3, 3, 3] } }",
       "kernel_size has 3 numbers; give one, or height and width"},
      {kImage + "layers { conv2d { filters: 2 kernel_size: 2000000000 } }", "kernel_size 2000000000 is too large"},
      {kImage + "layers { conv2d { filters: 2 kernel_size: 7 } }",
       "kernel [7,7] is larger than its input [6,6,3]; use a smaller one, padding: SAME"},
      {kImage + "layers { conv2d { filters: 2 kernel_size: 4 dilation_rate: 2 } }", "kernel [7,7] (dilated) is larger"},
      {kImage + "layers { conv2d { filters: 2 kernel_size: 3 strides: 0 } }", "strides 0 is not positive"},
      {kImage + "layers { conv2d { filters: 2 kernel_size: 3 strides: 2 dilation_rate: 2 } }",
       "strides and dilation_rate are both above 1; set one of them to 1"},
      {kImage + "layers { conv2d { filters: 2 kernel_size: 3 kernel_initializer { kind: ZEROS value: 2 } } }",
       "kernel_initializer.value is only for kind CONSTANT; set that kind or leave the value out"},
      {kImage + "layers { conv2d { filters: 2 kernel_size: 3 bias_initializer { kind: CONSTANT value: inf } } }",
       "bias_initializer.value is not finite"},
      {"layers { input { shape: 8 } } layers { conv2d { filters: 2 kernel_size: 3 } }",
       "layer \"conv2d\": its input is [8]; it needs [height, width, channels]"},
      {kImage + "layers { depthwise_conv2d { kernel_size: 3 depth_multiplier: -1 } }",
       "depth_multiplier -1 is not positive"},
      {kImage + "layers { batch_normalization { momentum: 1.5 } }", "momentum 1.5 is outside [0, 1]"},
      {kImage + "layers { batch_normalization { epsilon: 0 } }", "epsilon 0 is not positive"},
      {kImage + "layers { activation {} }", "layer \"activation\": activation is missing; use RELU, say"},
      {kImage + "layers { activation { activation: RELU negative_slope: 0.1 } }",
       "negative_slope is only for LEAKY_RELU"},
      {kImage + "layers { activation { activation: LEAKY_RELU negative_slope: -1 } }", "negative_slope -1 is negative"},
      {kImage + "layers { max_pooling2d { pool_size: 7 } }",
       "layer \"max_pooling2d\": pool [7,7] is larger than its input"},
      {kImage + "layers { average_pooling2d { strides: -1 } }", "strides -1 is not positive"},
      {"layers { input { shape: 8 } } layers { global_average_pooling2d {} }", "its input is [8]; it needs [height"},
      {kImage + "layers { dense {} }", "layer \"dense\": units 0 is not positive; use a number such as 10"},
      {kImage + "layers { dropout { rate: 1 } }",
       "layer \"dropout\": rate 1 is outside [0, 1); use a number such as 0.5"},
      {kImage + "layers { dropout { rate: -0.1 } }", "rate -0.1 is outside [0, 1)"},
      {kImage + "layers { dropout { rate: nan } }", "rate nan is outside [0, 1)"},
      {kImage + "layers { zero_padding2d { padding: [1, 2, 3] } }",
       "padding has 3 numbers; give one, two (height, width) or four"},
      {kImage + "layers { zero_padding2d { padding: -1 } }", "padding -1 is outside 0 .. "},
  });
}

TEST(GraphErrors, InitializersAndTheirArguments) {
  const auto dense = [](const std::string& initializer) {
    return "layers { input { shape: 8 } } layers { dense { units: 3 kernel_initializer { " + initializer + " } } }";
  };
  const std::string of = "layer \"dense\": kernel_initializer.";
  ExpectRefused({
      {dense("kind: RANDOM_UNIFORM minval: 1 maxval: -1"),
       of + "minval 1 is not below maxval -1; give both, the smaller one as minval"},
      {dense("kind: RANDOM_UNIFORM minval: 0.05"), of + "minval 0.05 is not below maxval 0.05"},
      {dense("kind: RANDOM_UNIFORM maxval: nan"), of + "maxval is not finite; use a number"},
      {dense("kind: RANDOM_UNIFORM stddev: 1"),
       of + "stddev is only for kind RANDOM_NORMAL or TRUNCATED_NORMAL; set that kind or leave the stddev out"},
      {dense("minval: 0"), of + "minval is only for kind RANDOM_UNIFORM; set that kind or leave the minval out"},
      {dense("kind: HE_NORMAL maxval: 1"), of + "maxval is only for kind RANDOM_UNIFORM"},
      {dense("kind: VARIANCE_SCALING mean: 0"), of + "mean is only for kind RANDOM_NORMAL or TRUNCATED_NORMAL"},
      {dense("kind: RANDOM_NORMAL stddev: -0.1"), of + "stddev -0.1 is negative; use a number such as 0.05"},
      {dense("kind: TRUNCATED_NORMAL stddev: -1"), of + "stddev -1 is negative"},
      {dense("kind: RANDOM_NORMAL stddev: inf"), of + "stddev is not finite"},
      {dense("kind: TRUNCATED_NORMAL mean: nan"), of + "mean is not finite"},
      {dense("kind: RANDOM_NORMAL scale: 1"),
       of + "scale is only for kind VARIANCE_SCALING; set that kind or leave the scale out"},
      {dense("kind: GLOROT_NORMAL mode: FAN_IN"), of + "mode is only for kind VARIANCE_SCALING"},
      {dense("distribution: DISTRIBUTION_UNIFORM"), of + "distribution is only for kind VARIANCE_SCALING"},
      {dense("kind: VARIANCE_SCALING scale: 0"), of + "scale 0 is not positive; use a number such as 2"},
      {dense("kind: VARIANCE_SCALING scale: -2"), of + "scale -2 is not positive"},
      {dense("kind: VARIANCE_SCALING scale: inf"), of + "scale is not finite"},
  });
  v1::Model model = FromText<v1::Model>(dense("kind: VARIANCE_SCALING"));
  v1::Initializer* initializer = model.mutable_layers(1)->mutable_dense()->mutable_kernel_initializer();
  initializer->set_mode(static_cast<v1::Initializer::FanMode>(9));
  ExpectRefused(model, of + "mode 9 is not known; use FAN_IN, FAN_OUT or FAN_AVG");
  initializer->set_mode(v1::Initializer::FAN_IN);
  initializer->set_distribution(static_cast<v1::Initializer::Distribution>(9));
  ExpectRefused(model, of + "distribution 9 is not known; use DISTRIBUTION_UNIFORM, say");
  // If that kind is the field's default, its arguments may stand alone.
  EXPECT_TRUE(
      Graph::Build(FromText<v1::Model>("layers { input { shape: 4 } } layers { embedding { input_dim: 3 output_dim: 2 "
                                       "embeddings_initializer { minval: -1 maxval: 1 } } } layers { flatten {} }"))
          .ok());
}

TEST(GraphErrors, Joins) {
  const std::string branches = kImage +
                               "layers { name: \"a\" conv2d { filters: 4 kernel_size: 1 } } "
                               "layers { name: \"b\" inputs: \"input_layer\" conv2d { filters: 3 kernel_size: 3 } } ";
  ExpectRefused({
      {branches + "layers { inputs: [\"a\", \"b\"] add {} }",
       "layer \"add\": its inputs have different shapes, [6,6,4] and [4,4,3]; make them equal"},
      {branches + "layers { inputs: [\"a\", \"b\"] concatenate {} }",
       "layer \"concatenate\": its inputs [6,6,4] and [4,4,3] differ in more than the last axis"},
      {kImage + "layers { name: \"f\" flatten {} } layers { inputs: [\"f\", \"input_layer\"] concatenate {} }",
       "its inputs [108] and [6,6,3] differ"},
  });
}

TEST(GraphErrors, Calls) {
  const auto attention = [](const std::string& inputs) {
    return "layers { name: 'q' input { shape: [3, 4] } } layers { name: 'a' inputs: [" + inputs +
           "] multi_head_attention { num_heads: 1 key_dim: 2 } }";
  };
  ExpectRefused({
      {kImage + "layers { training: true dropout { rate: 0.5 } }",
       "layer \"dropout\": training: true would compute as in training when it is evaluated, too; leave it out, or "
       "set false"},
      {attention("'query=q', 'key=q'"), "layer \"a\": inputs: no value; name a layer for it"},
      {attention("'q', 'query=q'"), "layer \"a\": inputs: query is given twice; give it once"},
      {attention("'query=q', 'q'"), "layer \"a\": inputs: \"q\" follows one that is given by name; name it too"},
      {attention("'q', 'value=v'"), "layer \"a\": its input \"v\" is not a layer of the model"},
      {attention("'q', 'mask=q'"), "layer \"a\": its input \"mask=q\" is not a layer of the model"},
  });
}

// Numbers that proto3 accepts although the enum has no such name.
TEST(GraphErrors, UnknownEnumNumbers) {
  v1::Model model = FromText<v1::Model>(kImage + "layers { conv2d { filters: 2 kernel_size: 3 } }");
  v1::Conv2D* conv = model.mutable_layers(1)->mutable_conv2d();
  conv->set_activation(static_cast<v1::Activation>(99));
  ExpectRefused(model, "layer \"conv2d\": activation 99 is not known; use LINEAR, RELU");
  conv->clear_activation();
  conv->set_padding(static_cast<v1::Padding>(-3));
  ExpectRefused(model, "padding -3 is not known; use VALID or SAME");
  conv->clear_padding();
  conv->mutable_kernel_initializer()->set_kind(static_cast<v1::Initializer::Kind>(77));
  ExpectRefused(model, "kernel_initializer.kind 77 is not known");
}

TEST(GraphErrors, SizesBeyondTheLimitsDoNotOverflow) {
  ExpectRefused({
      {"layers { input { shape: [2147483647, 2147483647, 2147483647] } }", "has too many numbers"},
      {kImage + "layers { flatten {} } layers { dense { units: 2147483647 } } layers { dense { units: 2147483647 } }",
       "too many parameters"},
      {kImage + "layers { conv2d { filters: 2147483647 kernel_size: 1048576 padding: SAME } }", "too many parameters"},
      {kImage + "layers { depthwise_conv2d { kernel_size: 1 depth_multiplier: 2147483647 } }", "has too many numbers"},
      {kImage + "layers { zero_padding2d { padding: 1048576 } }", "has too many numbers"},
      // Each layer fits; their sum does not.
      {"layers { input { shape: 131072 } } layers { dense { units: 262144 } } layers { dense { units: 131072 } } "
       "layers { dense { units: 262144 } }",
       "parameters at layer \"dense_1\""},
  });
}

TEST(GraphErrors, TooManyLayers) {
  v1::Model model = FromText<v1::Model>(kImage);
  for (int i = 0; i < kLayersMax; ++i) model.add_layers()->mutable_flatten();
  ExpectRefused(model, "model.layers: 4097 layers; at most 4096 are allowed");
  model.mutable_layers()->RemoveLast();
  EXPECT_TRUE(Graph::Build(model).ok());
}

// Keras' only rule for a layer's name is that it is text.
TEST(GraphErrors, NamesMayHaveAnyCharacter) {
  for (const std::string name : {"a b", "a/b/c", "a\\\"b\\\"", "\\\\", "d\u00e9j\u00e0", "\u5c42", "a=b", "a:0"}) {
    const auto graph = Graph::Build(
        FromText<v1::Model>(kImage + "layers { flatten {} } layers { name: \"" + name + "\" dense { units: 1 } }"));
    ASSERT_TRUE(graph.ok()) << graph.status();
    EXPECT_EQ(graph->variables()[0].name, graph->output().name + "/kernel");
  }
}

TEST(GraphErrors, LongNamesAreCutAndOddOnesEscaped) {
  ExpectRefused(FromText<v1::Model>(kImage + "layers { inputs: \"a\\n\\\"b\" flatten {} }"),
                "its input \"a\\n\\\"b\" is not a layer of the model");
  const std::string name(100000, 'x');
  ExpectRefused(FromText<v1::Model>(kImage + "layers { inputs: \"" + name + "\" flatten {} }"),
                "is not a layer of the model");
  ExpectRefused(FromText<v1::Model>(kImage + "layers { name: \"" + name + "\" flatten {} }"), "name has more than 512");
}

}  // namespace
}  // namespace cairn
