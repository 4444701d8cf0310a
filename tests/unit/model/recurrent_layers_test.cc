// Goal: recurrent layers, and layers that make or use a mask of steps, get Keras' shapes, variables, names and initial
// values; bad fields are refused with the layer's and the field's name; a mask is passed on as far as in Keras.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/model/graph.h"
#include "common/model/initializer.h"
#include "common/model/recurrent.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

absl::StatusOr<Graph> BuildText(const std::string& text) { return Graph::Build(FromText<v1::Model>(text)); }

absl::StatusOr<Graph> OnSequence(const std::string& layer) {
  return BuildText("layers { name: 'x' input { shape: [7, 5] } } layers { name: 'y' inputs: 'x' " + layer + " }");
}

struct VariableCase {
  std::string layer;
  Shape output;
  std::vector<std::pair<std::string, Shape>> variables;
};

TEST(RecurrentLayers, ShapesAndVariablesOfKeras) {
  const std::vector<VariableCase> cases = {
      {"simple_rnn { units: 3 }",
       {3},
       {{"simple_rnn_cell/kernel", {5, 3}},
        {"simple_rnn_cell/recurrent_kernel", {3, 3}},
        {"simple_rnn_cell/bias", {3}}}},
      {"lstm { units: 3 return_sequences: true }",
       {7, 3},
       {{"lstm_cell/kernel", {5, 12}}, {"lstm_cell/recurrent_kernel", {3, 12}}, {"lstm_cell/bias", {12}}}},
      {"gru { units: 3 }",
       {3},
       {{"gru_cell/kernel", {5, 9}}, {"gru_cell/recurrent_kernel", {3, 9}}, {"gru_cell/bias", {2, 9}}}},
      {"gru { units: 3 reset_after: false }",
       {3},
       {{"gru_cell/kernel", {5, 9}}, {"gru_cell/recurrent_kernel", {3, 9}}, {"gru_cell/bias", {9}}}},
      {"lstm { units: 3 use_bias: false }",
       {3},
       {{"lstm_cell/kernel", {5, 12}}, {"lstm_cell/recurrent_kernel", {3, 12}}}},
      {"bidirectional { layer { gru { units: 2 use_bias: false return_sequences: true } } }",
       {7, 4},
       {{"forward_gru/gru_cell/kernel", {5, 6}},
        {"forward_gru/gru_cell/recurrent_kernel", {2, 6}},
        {"backward_gru/gru_cell/kernel", {5, 6}},
        {"backward_gru/gru_cell/recurrent_kernel", {2, 6}}}},
      {"bidirectional { merge_mode: SUM layer { name: 'r' simple_rnn { units: 2 use_bias: false } } }",
       {2},
       {{"forward_r/simple_rnn_cell/kernel", {5, 2}},
        {"forward_r/simple_rnn_cell/recurrent_kernel", {2, 2}},
        {"backward_r/simple_rnn_cell/kernel", {5, 2}},
        {"backward_r/simple_rnn_cell/recurrent_kernel", {2, 2}}}},
      {"time_distributed { layer { dense { units: 4 } } }", {7, 4}, {{"dense/kernel", {5, 4}}, {"dense/bias", {4}}}},
      {"masking {}", {7, 5}, {}},
  };
  for (const VariableCase& c : cases) {
    SCOPED_TRACE(c.layer);
    const absl::StatusOr<Graph> graph = OnSequence(c.layer);
    ASSERT_TRUE(graph.ok()) << graph.status();
    EXPECT_EQ(graph->output().output, c.output);
    ASSERT_EQ(graph->variables().size(), c.variables.size());
    for (size_t i = 0; i < c.variables.size(); ++i) {
      EXPECT_EQ(graph->variables()[i].name, "y/" + c.variables[i].first);
      EXPECT_EQ(graph->variables()[i].shape, c.variables[i].second);
    }
  }
}

TEST(RecurrentLayers, DefaultsOfKeras) {
  const Graph graph = OnSequence("lstm { units: 3 }").value();
  const v1::LSTM& lstm = graph.output().layer.lstm();
  EXPECT_EQ(lstm.activation(), v1::TANH);
  EXPECT_EQ(lstm.recurrent_activation(), v1::SIGMOID);
  EXPECT_TRUE(lstm.use_bias() && lstm.unit_forget_bias());
  EXPECT_EQ(lstm.kernel_initializer().kind(), v1::Initializer::GLOROT_UNIFORM);
  EXPECT_EQ(lstm.recurrent_initializer().kind(), v1::Initializer::ORTHOGONAL);
  EXPECT_TRUE(OnSequence("gru { units: 3 }")->output().layer.gru().reset_after());
  const v1::Bidirectional both =
      OnSequence("bidirectional { layer { lstm { units: 3 } } }")->output().layer.bidirectional();
  EXPECT_FALSE(both.layer().lstm().go_backwards());
  EXPECT_TRUE(both.backward_layer().lstm().go_backwards());
  EXPECT_EQ(both.merge_mode(), v1::Bidirectional::CONCAT);
}

TEST(RecurrentLayers, RefusesByName) {
  const std::pair<const char*, const char*> cases[] = {
      {"lstm {}", "units 0 is not positive"},
      {"lstm { units: 3 dropout: 1 }", "dropout 1 is outside [0, 1)"},
      {"gru { units: 3 recurrent_dropout: -0.1 }", "recurrent_dropout -0.1 is outside"},
      {"lstm { units: 3 activation: SOFTMAX }", "activation SOFTMAX is not one that a recurrent layer has"},
      {"gru { units: 3 recurrent_activation: SOFTMAX }", "recurrent_activation SOFTMAX is not one"},
      {"lstm { units: 3 bias_initializer { kind: ORTHOGONAL } }", "has one axis, and ORTHOGONAL makes matrices"},
      {"lstm { units: 3 kernel_initializer { gain: 2 } }", "kernel_initializer.gain is only for kind ORTHOGONAL or"},
      {"bidirectional {}", "layer: it is not a recurrent layer; use simple_rnn, lstm, gru or conv_lstm2d, say"},
      {"bidirectional { layer { dense { units: 3 } } }", "layer: it is not a recurrent layer"},
      {"bidirectional { merge_mode: 7 layer { gru { units: 3 } } }", "merge_mode 7 is not known"},
      {"bidirectional { layer { gru { units: 3 } } backward_layer { gru { units: 3 } } }", "have the same direction"},
      {"bidirectional { merge_mode: AVE layer { gru { units: 3 } } backward_layer { gru { units: 4 go_backwards: true "
       "} } }",
       "units 3 and 4 cannot be merged by AVE"},
      {"bidirectional { layer { inputs: 'x' gru { units: 3 } } }", "give them to the bidirectional itself"},
      {"time_distributed {}", "layer: it is missing; use dense"},
      {"time_distributed { layer { add {} } }", "layer: an add is not supported there"},
      {"time_distributed { layer { activity_regularization { l2: 1 } } }",
       "layer: an activity_regularization is not supported there"},
      {"time_distributed { layer { masking {} } }", "layer: a masking is not supported there"},
      {"time_distributed { layer { conv1d { filters: 3 kernel_size: 1 } } }", "[steps,"},
      {"time_distributed { layer { embedding { input_dim: 3 output_dim: 2 mask_zero: true } } }", "mask_zero makes"},
      {"time_distributed { layer { repeat_vector { n: 0 } } }", "n 0"},
      {"time_distributed { layer { dense { units: 0 } } }", "units 0 is not positive"},
      {"masking { mask_value: inf }", "mask_value inf is not finite"},
  };
  for (const auto& [layer, message] : cases) {
    SCOPED_TRACE(layer);
    EXPECT_THAT(OnSequence(layer).status().message(), AllOf(HasSubstr("layer \"y\""), HasSubstr(message)));
  }
  const std::string flat = "layers { input { shape: 7 } } layers { name: 'y' ";
  for (const char* layer :
       {"lstm { units: 2 } }", "masking {} }", "time_distributed { layer { dense { units: 2 } } } }"}) {
    EXPECT_THAT(BuildText(flat + layer).status().message(), AllOf(HasSubstr("layer \"y\""), HasSubstr("[steps,")));
  }
  EXPECT_THAT(BuildText("layers { input { shape: [2, 3] } } layers { name: 'y' embedding { input_dim: 4 output_dim: 2 "
                        "mask_zero: true } }")
                  .status()
                  .message(),
              HasSubstr("mask_zero: its input is [2,3]"));
}

TEST(RecurrentLayers, FirstStatesMustFit) {
  const auto build = [](const std::string& inputs, const std::string& layer) {
    return BuildText(
               "layers { name: 'x' input { shape: [7, 5] } } layers { name: 'flat' flatten {} } "
               "layers { name: 'h' dense { units: 3 } } layers { name: 'c' inputs: 'flat' dense { units: 2 } } "
               "layers { name: 's' inputs: 'c' dense { units: 3 } } layers { name: 'y' inputs: [" +
               inputs + "] " + layer + " }")
        .status();
  };
  EXPECT_TRUE(build("'x', 'h', 's'", "lstm { units: 3 }").ok());
  EXPECT_THAT(build("'x', 'h', 'c'", "lstm { units: 3 }").message(), HasSubstr("its first state is [2]; it needs [3]"));
  EXPECT_THAT(build("'x', 'h'", "lstm { units: 3 }").message(), HasSubstr("none or all of its first states"));
  EXPECT_THAT(build("'x', 'h', 's'", "gru { units: 3 }").message(), HasSubstr("has 3 inputs, but a gru takes"));
}

// ---- initial values ----

std::vector<float> All(const Graph& graph, uint64_t seed) {
  std::vector<float> values(graph.space_size());
  InitializeRange(graph, seed, 0, absl::MakeSpan(values));
  return values;
}

// The largest difference between x x' and the unit matrix, times `square`.
double Skew(absl::Span<const float> x, int64_t rows, int64_t columns, bool transposed, double square) {
  double worst = 0;
  const int64_t vectors = transposed ? columns : rows, length = transposed ? rows : columns;
  for (int64_t a = 0; a < vectors; ++a) {
    for (int64_t b = 0; b < vectors; ++b) {
      double dot = 0;
      for (int64_t i = 0; i < length; ++i) {
        dot += static_cast<double>(transposed ? x[i * columns + a] : x[a * columns + i]) *
               (transposed ? x[i * columns + b] : x[b * columns + i]);
      }
      worst = std::max(worst, std::abs(dot - (a == b ? square : 0.0)));
    }
  }
  return worst;
}

TEST(Orthogonal, VectorsAreOrthogonalAndOneFunctionOfThePlace) {
  for (const auto& [rows, columns] : {std::pair(6, 24), std::pair(40, 7), std::pair(16, 16)}) {
    SCOPED_TRACE(absl::StrCat(rows, " x ", columns));
    const Graph graph =
        BuildText(absl::StrCat("layers { input { shape: ", rows, " } } layers { dense { units: ", columns,
                               " kernel_initializer { kind: ORTHOGONAL gain: 2 } } }"))
            .value();
    const Variable& v = graph.variables()[0];
    const std::vector<float> values = All(graph, 3);
    const absl::Span<const float> kernel = absl::MakeConstSpan(values).subspan(v.offset, v.size);
    EXPECT_LT(Skew(kernel, rows, columns, rows > columns, 4), 1e-5);
    EXPECT_NE(All(graph, 4), values);
    for (int64_t begin = 0; begin < graph.space_size(); begin += 13) {
      std::vector<float> part(std::min<int64_t>(13, graph.space_size() - begin));
      InitializeRange(graph, 3, begin, absl::MakeSpan(part));
      EXPECT_TRUE(std::equal(part.begin(), part.end(), values.begin() + begin)) << begin;
    }
  }
}

TEST(Orthogonal, IsRefusedWhereItWouldTakeForEver) {
  EXPECT_THAT(
      BuildText("layers { input { shape: 20000 } } layers { name: 'y' dense { units: 20000 kernel_initializer { "
                "kind: ORTHOGONAL } } }")
          .status()
          .message(),
      AllOf(HasSubstr("layer \"y\""), HasSubstr("too large for ORTHOGONAL")));
}

TEST(Identity, OnesOnTheDiagonal) {
  const Graph graph = BuildText(
                          "layers { input { shape: 2 } } layers { dense { units: 3 kernel_initializer { kind: "
                          "IDENTITY gain: 0.5 } } }")
                          .value();
  const std::vector<float> values = All(graph, 1);
  EXPECT_THAT(absl::MakeConstSpan(values).first(6), ElementsAre(0.5, 0, 0, 0, 0.5, 0));
  EXPECT_THAT(
      OnSequence("conv1d { filters: 2 kernel_size: 1 kernel_initializer { kind: IDENTITY } }").status().message(),
      HasSubstr("is not a matrix, as IDENTITY needs"));
}

TEST(ForgetBias, BeginsAsOnesOfTheSecondPart) {
  const auto bias_of = [](const std::string& layer) {
    const Graph graph = OnSequence(layer).value();
    const std::vector<float> values = All(graph, 1);
    std::vector<float> biases;
    for (const Variable& v : graph.variables()) {
      if (!v.name.ends_with("/bias")) continue;
      biases.insert(biases.end(), values.begin() + v.offset, values.begin() + v.offset + v.size);
    }
    return biases;
  };
  EXPECT_THAT(bias_of("lstm { units: 2 }"), ElementsAre(0, 0, 1, 1, 0, 0, 0, 0));
  EXPECT_THAT(bias_of("lstm { units: 1 unit_forget_bias: false bias_initializer { kind: CONSTANT value: 2 } }"),
              ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(bias_of("bidirectional { layer { lstm { units: 1 } } backward_layer { lstm { units: 1 go_backwards: true "
                      "unit_forget_bias: false } } }"),
              ElementsAre(0, 1, 0, 0, 0, 0, 0, 0));
}

// ---- masks ----

// The name of the layer whose mask the last layer's output has.
std::string MaskBehind(const std::string& layers) {
  const absl::StatusOr<Graph> graph = BuildText(
      "layers { name: 'ids' input { shape: 7 } } layers { name: 'e' embedding { input_dim: 9 output_dim: 4 mask_zero: "
      "true } } " +
      layers);
  if (!graph.ok()) return std::string(graph.status().message());
  const int mask = graph->output().mask;
  return mask < 0 ? "" : graph->nodes()[mask].name;
}

TEST(Masks, GoAsFarAsInKeras) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "e"},
      {"layers { dense { units: 3 } } layers { dropout { rate: 0.5 } } layers { layer_normalization {} }", "e"},
      {"layers { lstm { units: 3 return_sequences: true } }", "e"},
      {"layers { lstm { units: 3 } }", ""},
      {"layers { bidirectional { layer { gru { units: 3 return_sequences: true } } } }", "e"},
      {"layers { name: 'm' masking {} }", "m"},
      {"layers { name: 'd' dense { units: 4 } } layers { inputs: ['e', 'd'] add {} }", "e"},
      {"layers { name: 'd' dense { units: 2 } } layers { inputs: ['e', 'd'] concatenate {} }", "e"},
      {"layers { name: 'r' inputs: 'ids' embedding { input_dim: 9 output_dim: 4 } } layers { inputs: ['e', 'r'] add {} "
       "}",
       ""},
      {"layers { inputs: ['e', 'e'] multi_head_attention { num_heads: 1 key_dim: 2 } }", "e"},
      {"layers { conv1d { filters: 3 kernel_size: 1 } }", ""},
      {"layers { time_distributed { layer { dense { units: 3 } } } }", "e"},
      {"layers { global_average_pooling1d {} }", ""},
      {"layers { flatten {} }", ""},
      {"layers { trainable: false batch_normalization {} }", "e"},
  };
  for (const auto& [layers, mask] : cases) EXPECT_EQ(MaskBehind(layers), mask) << layers;
}

TEST(Masks, WhatKerasDoesAndCairnCannotIsRefused) {
  EXPECT_THAT(MaskBehind("layers { name: 'bn' batch_normalization {} }"),
              AllOf(HasSubstr("layer \"bn\""), HasSubstr("\"e\" masks are left out of its statistics")));
  EXPECT_THAT(MaskBehind("layers { name: 'm' masking {} } layers { name: 'a' inputs: ['e', 'm'] add {} }"),
              AllOf(HasSubstr("layer \"a\""), HasSubstr("masks of different layers")));
}

}  // namespace
}  // namespace cairn
