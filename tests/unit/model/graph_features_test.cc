// Goal: the layers of features get Keras' names, output shapes, variables and defaults, and bad fields are refused with
// the layer's and the field's name. The figures are Keras' own (model.summary()) or worked out by hand from its code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/model/graph.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

absl::StatusOr<Graph> GraphOf(const std::string& input, const std::string& layer) {
  return Graph::Build(FromText<v1::Model>("layers { input { shape: " + input + " } } layers { " + layer + " }"));
}

const std::string kTwice = "inputs: ['input_layer', 'input_layer'] ";

struct ShapeCase {
  std::string input, layer;
  Shape output;
  std::vector<std::pair<std::string, Shape>> variables;
  VariableKind kind = VariableKind::kTrainable;
};

TEST(GraphFeatures, ShapesAndVariablesAsKerasHasThem) {
  const VariableKind frozen = VariableKind::kFrozen;
  const std::vector<ShapeCase> cases = {
      // Keras counts 2 * 3 + 1 parameters that are not trained.
      {"[4, 5, 3]", "normalization {}", {4, 5, 3}, {{"mean", {3}}, {"variance", {3}}, {"count", {}}}, frozen},
      {"[4, 5, 3]",
       "normalization { axis: [3, 1] }",
       {4, 5, 3},
       {{"mean", {4, 3}}, {"variance", {4, 3}}, {"count", {}}},
       frozen},
      {"[7]", "normalization { all: true }", {7}, {{"mean", {}}, {"variance", {}}, {"count", {}}}, frozen},
      {"[4, 3]", "normalization { mean: [1, 2, 3] variance: 4 }", {4, 3}, {}},
      {"[4, 3]", "rescaling { scales: [1, 2, 3] }", {4, 3}, {}},
      {"[4, 3]", "dropout { rate: 0.5 noise_shape: [1, 3] }", {4, 3}, {}},
      {"[4, 3]", "spatial_dropout1d { rate: 0.5 }", {4, 3}, {}},
      {"[4, 3]", "gaussian_noise { stddev: 0 }", {4, 3}, {}},
      {"[4]", "repeat_vector { n: 3 }", {3, 4}, {}},
      {"[4, 5]", "rms_normalization {}", {4, 5}, {{"scale", {5}}}},
      {"[4, 5]", "unit_normalization {}", {4, 5}, {}},
      {"[4, 5, 3]", "layer_normalization { axis: [-1, 2] }", {4, 5, 3}, {{"gamma", {5, 3}}, {"beta", {5, 3}}}},
      {"[4, 5]",
       kTwice + "attention { use_scale: true score_mode: CONCAT }",
       {4, 5},
       {{"scale", {}}, {"concat_score_weight", {}}}},
      {"[4, 5]", kTwice + "additive_attention {}", {4, 5}, {{"scale", {5}}}},
      {"[4, 5]", kTwice + "additive_attention { use_scale: false }", {4, 5}, {}},
      {"[4, 5]",
       "einsum_dense { equation: 'abc,cde->abde' output_shape: [-1, 2, 3] bias_axes: 'e' }",
       {4, 2, 3},
       {{"kernel", {5, 2, 3}}, {"bias", {3}}}},
      {"[4, 5]",
       "einsum_dense { equation: 'abc,cde->abde' output_shape: [4, 2, 3] bias_axes: 'd' }",
       {4, 2, 3},
       {{"kernel", {5, 2, 3}}, {"bias", {2, 1}}}},
      {"[4, 6, 5]",
       "einsum_dense { equation: '...x,xy->...y' output_shape: 7 bias_axes: 'y' }",
       {4, 6, 7},
       {{"kernel", {5, 7}}, {"bias", {7}}}},
      {"[4, 5]",
       kTwice + "multi_head_attention { num_heads: 2 key_dim: 3 output_shape: 7 use_bias: false attention_axes: 1 }",
       {4, 7},
       {{"query/kernel", {5, 2, 3}},
        {"key/kernel", {5, 2, 3}},
        {"value/kernel", {5, 2, 3}},
        {"attention_output/kernel", {2, 3, 7}}}},
  };
  for (const ShapeCase& c : cases) {
    SCOPED_TRACE(c.input + " " + c.layer);
    const auto graph = GraphOf(c.input, c.layer);
    ASSERT_TRUE(graph.ok()) << graph.status();
    EXPECT_EQ(graph->output().output, c.output);
    ASSERT_EQ(graph->variables().size(), c.variables.size());
    for (size_t v = 0; v < c.variables.size(); ++v) {
      EXPECT_EQ(graph->variables()[v].name, graph->output().name + "/" + c.variables[v].first);
      EXPECT_EQ(graph->variables()[v].shape, c.variables[v].second);
      EXPECT_EQ(graph->variables()[v].kind, c.kind);
    }
  }
}

TEST(GraphFeatures, InitializersOfANormalization) {
  const auto graph =
      GraphOf("[4]",
              "batch_normalization { gamma_initializer { kind: CONSTANT value: 2 } beta_initializer { kind: ONES } "
              "moving_mean_initializer { kind: CONSTANT value: 3 } moving_variance_initializer { kind: ZEROS } }");
  ASSERT_TRUE(graph.ok()) << graph.status();
  const std::vector<Variable>& v = graph->variables();
  ASSERT_EQ(v.size(), 4u);
  EXPECT_EQ(v[0].initializer.value(), 2);
  EXPECT_EQ(v[1].initializer.kind(), v1::Initializer::ONES);
  EXPECT_EQ(v[2].initializer.value(), 3);
  EXPECT_EQ(v[3].initializer.kind(), v1::Initializer::ZEROS);
}

TEST(GraphFeatures, BadFieldsAreRefused) {
  struct Case {
    std::string input, layer, message;
  };
  const std::vector<Case> cases = {
      {"[4, 3]", "normalization { axis: 3 }",
       "layer \"normalization\": axis: its input [4,3] has no axis 3; use 1 .. 2"},
      {"[4, 3]", "normalization { axis: 0 }", "has no axis 0"},
      {"[4, 3]", "normalization { axis: [2, -1] }", "axis names axis 2 twice"},
      {"[4, 3]", "normalization { axis: 1 all: true }", "all: one mean for all numbers, but axis names axes too"},
      {"[4, 3]", "normalization { mean: [1, 2] variance: 1 }", "mean has 2 numbers, but the axes have 3"},
      {"[4, 3]", "normalization { mean: 1 }", "variance is missing; give mean and variance, or neither"},
      {"[4, 3]", "normalization { mean: 1 variance: -1 }", "variance -1 is negative"},
      {"[4, 3]", "normalization { mean: inf variance: 1 }", "mean inf is not finite"},
      {"[4, 3]", "rescaling { scales: [1, 2] }", "scales has 2 numbers, but its input has 3 channels"},
      {"[4, 3]", "rescaling { scale: 1 scales: [1, 2, 3] }", "leave one of the two pairs out"},
      {"[4, 3]", "rescaling { offsets: [1, 2, 3] }", "scales is missing"},
      {"[4, 3]", "rescaling { scales: [1, 0, 3] }", "scales: one is 0"},
      {"[4, 3]", "dropout { rate: 0.5 noise_shape: 1 }", "noise_shape has 1 numbers, but its input [4,3] has 2 axes"},
      {"[4, 3]", "dropout { rate: 0.5 noise_shape: [2, 3] }", "noise_shape: 2 for an axis of 4 numbers; use -1, or 1"},
      {"[4, 3]", "alpha_dropout { rate: 1 }", "rate 1 is outside [0, 1)"},
      {"[4, 3]", "gaussian_dropout { rate: -0.1 }", "rate -0.1 is outside [0, 1)"},
      {"[4, 3]", "gaussian_noise { stddev: -1 }", "stddev -1 is negative"},
      {"[4]", "spatial_dropout1d { rate: 0.5 }", "it needs [steps, features]"},
      {"[4, 3]", "spatial_dropout3d { rate: 0.5 }", "it needs [depth, height, width, channels]"},
      {"[4, 3]", "repeat_vector { n: 2 }", "its input is [4,3]; it needs [features]"},
      {"[4]", "repeat_vector {}", "n 0 is not positive"},
      {"[4, 3]", "rms_normalization { axis: 1 }", "axis 1 is not the last one of its input [4,3]"},
      {"[4, 3]", "rms_normalization { epsilon: 0 }", "epsilon 0 is not positive"},
      {"[4, 3]", "batch_normalization { axis: 1 }", "axis 1 is not the last one of its input [4,3]"},
      {"[4, 3]", "group_normalization { groups: 1 axis: 1 }", "axis 1 is not the last one of its input [4,3]"},
      {"[4, 3]", "layer_normalization { axis: 1 }", "axis: not the last ones of its input [4,3]"},
      {"[4, 3]", "unit_normalization { axis: 1 }", "axis: not the last ones of its input [4,3]"},
      {"[4, 3]", kTwice + "attention { dropout: 1 }", "dropout 1 is outside [0, 1)"},
      {"[4]", kTwice + "attention {}", "it needs [steps, features]"},
      {"[4, 3]", "attention {}", "an attention joins two or more layers; name them"},
      {"[4, 3]", kTwice + "multi_head_attention { num_heads: 1 key_dim: 1 attention_axes: 2 }", "attention_axes: only"},
      {"[4, 3]", kTwice + "multi_head_attention { num_heads: 1 key_dim: 1 output_shape: 0 }", "output_shape 0 is not"},
      {"[4, 3]", "group_query_attention { head_dim: 2 num_query_heads: 2 num_key_value_heads: 1 }",
       "has 1 input, but a group_query_attention takes a query, a value and"},
      {"[4]", kTwice + "group_query_attention { head_dim: 2 num_query_heads: 2 num_key_value_heads: 1 }",
       "it needs [steps, features]"},
      {"[4, 3]", kTwice + "group_query_attention { num_query_heads: 2 num_key_value_heads: 1 }", "head_dim 0 is not"},
      {"[4, 3]", kTwice + "group_query_attention { head_dim: 2 num_query_heads: 4 num_key_value_heads: 3 }",
       "num_key_value_heads 3 does not divide num_query_heads 4"},
      {"[4, 3]", kTwice + "group_query_attention { head_dim: 2 num_query_heads: 4 num_key_value_heads: 2 dropout: 1 }",
       "dropout 1 is outside [0, 1)"},
      {"[4, 3]",
       kTwice + "group_query_attention { head_dim: 2 num_query_heads: 4 num_key_value_heads: 2 sliding_window: -1 }",
       "sliding_window -1 is negative"},
      {"[4, 3]", "einsum_dense { equation: 'abc' output_shape: [-1, 3] }",
       "it does not have two operands and a result"},
      {"[4, 3]", "einsum_dense { equation: 'abc,cd->bd' output_shape: [-1, 3] }",
       "the first letter of the input is the batch"},
      {"[4, 3]", "einsum_dense { equation: 'abc,cd->abe' output_shape: [-1, 3] }", "\"d\" is only in the kernel"},
      {"[4, 3]", "einsum_dense { equation: 'ab,bd->ad' output_shape: 3 }",
       "its input has 2 axes after the batch, but the equation has 1"},
      {"[4, 3]", "einsum_dense { equation: 'abc,cd->abd' output_shape: [-1, -1] }", "output_shape: -1 for \"d\""},
      {"[4, 3]", "einsum_dense { equation: 'abc,cd->abd' output_shape: [5, 2] }",
       "output_shape: 5 for \"b\", of which the input has 4"},
      {"[4, 3]", "einsum_dense { equation: 'abc,cd->abd' output_shape: 3 }", "output_shape has 1 numbers"},
      {"[4, 3]", "einsum_dense { equation: 'abc,cd->abd' output_shape: [-1, 3] bias_axes: 'x' }",
       "bias_axes: \"x\" has characters that are not letters"},
      {"[4]", "activation { activation: THRESHOLD }", "threshold is missing"},
      {"[4]", "activation { activation: RELU max_value: 0 }", "max_value 0 is not positive"},
      {"[4]", "activation { activation: RELU max_value: 1 threshold: 0.5 }", "threshold and max_value together"},
      {"[4]", "activation { activation: TANH max_value: 1 }", "max_value is only for RELU"},
      {"[4]", "activation { activation: TANH threshold: 1 }", "threshold is only for RELU, THRESHOLD"},
      {"[4]", "activation { activation: RELU value: 1 }", "value is only for THRESHOLD"},
      {"[4]", "activation { activation: SOFT_SHRINK threshold: -1 }", "threshold -1 is negative"},
      {"[4]", "activation { activation: CELU alpha: 0 }", "alpha 0 is not positive"},
      {"[4]", "activation { activation: RELU axis: 1 }", "axis is only for SOFTMAX, LOG_SOFTMAX"},
      {"[4]", "dense { units: 2 activation: GLU }", "activation GLU halves an axis; use LINEAR"},
      {"[4, 3]", "activation { activation: GLU }", "GLU halves the last axis, so it needs an even size"},
      {"[4, 3]", "activation { activation: GLU axis: 1 }", "it needs an even size"},
      {"[4, 4]", "activation { activation: GLU axis: 1 }", "other than the last one is not supported"},
      {"[4, 4]", "activation { activation: SPARSEMAX axis: 1 }", "other than the last one is not supported"},
      {"[4, 3]", "activation { activation: SOFTMAX axis: 1 }",
       "other than the last one is not supported; put a permute"},
      {"[4]", "dense { units: 2 activation: THRESHOLD }", "activation THRESHOLD has arguments; use LINEAR"},
      {"[4]", "activation { activation: THRESHOLD threshold: 1 value: 2 }", "value 2: only 0 below the threshold"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.input + " " + c.layer);
    const auto graph = GraphOf(c.input, c.layer);
    ASSERT_FALSE(graph.ok());
    EXPECT_EQ(graph.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(graph.status().message()), testing::HasSubstr(c.message));
  }
}

}  // namespace
}  // namespace cairn
