// Goal: ConvLSTM1D, ConvLSTM2D and ConvLSTM3D get Keras' shapes, variables, names, defaults and initial values; bad
// fields and inputs are refused by their names; few other layers take the axes of a ConvLSTM3D.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

absl::StatusOr<Graph> On(const std::string& shape, const std::string& layer) {
  return BuildText("layers { name: 'x' input { shape: " + shape + " } } layers { name: 'y' inputs: 'x' " + layer +
                   " }");
}

constexpr char kRows[] = "[7, 10, 3]", kFilm[] = "[7, 10, 12, 3]", kVolumes[] = "[7, 6, 10, 12, 3]";

TEST(ConvLstm, ShapesOfKeras) {
  struct Case {
    const char *input, *layer;
    Shape output;
  };
  const Case cases[] = {
      {kRows, "conv_lstm1d { filters: 4 kernel_size: 3 }", {8, 4}},
      {kRows, "conv_lstm1d { filters: 4 kernel_size: 3 strides: 2 return_sequences: true }", {7, 4, 4}},
      {kRows, "conv_lstm1d { filters: 4 kernel_size: 3 strides: 3 padding: SAME }", {4, 4}},
      {kRows, "conv_lstm1d { filters: 4 kernel_size: 3 dilation_rate: 4 }", {2, 4}},
      {kFilm, "conv_lstm2d { filters: 4 kernel_size: [3, 5] }", {8, 8, 4}},
      {kFilm, "conv_lstm2d { filters: 4 kernel_size: 3 padding: SAME return_sequences: true }", {7, 10, 12, 4}},
      {kFilm, "conv_lstm2d { filters: 4 kernel_size: 3 strides: [2, 3] return_cell: true }", {4, 4, 12}},
      {kVolumes, "conv_lstm3d { filters: 4 kernel_size: [1, 2, 3] strides: [3, 1, 1] }", {2, 9, 10, 4}},
      {kVolumes,
       "conv_lstm3d { filters: 4 kernel_size: 3 padding: SAME strides: 2 return_sequences: true return_cell: true }",
       {7, 3, 5, 6, 12}},
      {kFilm, "bidirectional { layer { conv_lstm2d { filters: 4 kernel_size: 3 } } }", {8, 10, 8}},
      {kFilm,
       "bidirectional { merge_mode: SUM layer { conv_lstm2d { filters: 4 kernel_size: 3 return_sequences: true } } }",
       {7, 8, 10, 4}},
      {kFilm, "time_distributed { layer { conv_lstm1d { filters: 4 kernel_size: 3 } } }", {7, 10, 4}},
      {kVolumes, "time_distributed { layer { conv_lstm2d { filters: 4 kernel_size: 3 } } }", {7, 8, 10, 4}},
      {kVolumes, "time_distributed { layer { conv3d { filters: 4 kernel_size: 3 } } }", {7, 4, 8, 10, 4}},
      {kVolumes, "time_distributed { layer { dense { units: 2 } } }", {7, 6, 10, 12, 2}},
      {kVolumes, "time_distributed { layer { flatten {} } }", {7, 2160}},
      {kFilm, "time_distributed { layer { reshape { target_shape: [5, 2, 12, 3] } } }", {7, 5, 2, 12, 3}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.layer);
    const absl::StatusOr<Graph> graph = On(c.input, c.layer);
    EXPECT_EQ(graph.ok(), !c.output.empty()) << graph.status();
    if (!graph.ok()) continue;
    EXPECT_EQ(graph->output().output, c.output);
  }
}

TEST(ConvLstm, VariablesOfKeras) {
  const std::pair<const char*, const char*> both[] = {
      {"conv_lstm2d { filters: 4 kernel_size: [3, 5] strides: 2 }", "y/conv_lstm_cell"},
      {"bidirectional { layer { conv_lstm2d { filters: 4 kernel_size: [3, 5] } } }",
       "y/forward_conv_lstm2d/conv_lstm_cell"},
  };
  for (const auto& [layer, cell] : both) {
    SCOPED_TRACE(layer);
    const Graph graph = On(kFilm, layer).value();
    ASSERT_GE(graph.variables().size(), 3u);
    EXPECT_EQ(graph.variables()[0].name, std::string(cell) + "/kernel");
    EXPECT_THAT(graph.variables()[0].shape, ElementsAre(3, 5, 3, 16));
    EXPECT_EQ(graph.variables()[1].name, std::string(cell) + "/recurrent_kernel");
    EXPECT_THAT(graph.variables()[1].shape, ElementsAre(3, 5, 4, 16));
    EXPECT_EQ(graph.variables()[2].name, std::string(cell) + "/bias");
    EXPECT_THAT(graph.variables()[2].shape, ElementsAre(16));
  }
  EXPECT_EQ(On(kFilm, both[1].first)->variables()[3].name, "y/backward_conv_lstm2d/conv_lstm_cell/kernel");
  EXPECT_EQ(On(kRows, "conv_lstm1d { filters: 4 kernel_size: 3 use_bias: false }")->variables().size(), 2u);
}

TEST(ConvLstm, DefaultsOfKeras) {
  const Graph graph = On(kFilm, "conv_lstm2d { filters: 2 kernel_size: 3 }").value();
  const v1::ConvLSTM& m = graph.output().layer.conv_lstm2d();
  EXPECT_THAT(m.kernel_size(), ElementsAre(3, 3));
  EXPECT_THAT(m.strides(), ElementsAre(1, 1));
  EXPECT_THAT(m.dilation_rate(), ElementsAre(1, 1));
  EXPECT_EQ(m.padding(), v1::VALID);
  EXPECT_EQ(m.activation(), v1::TANH);
  EXPECT_EQ(m.recurrent_activation(), v1::SIGMOID);
  EXPECT_TRUE(m.use_bias() && m.unit_forget_bias());
  EXPECT_EQ(m.kernel_initializer().kind(), v1::Initializer::GLOROT_UNIFORM);
  EXPECT_EQ(m.recurrent_initializer().kind(), v1::Initializer::ORTHOGONAL);
  EXPECT_EQ(graph.variables()[0].fan_in, 3 * 3 * 3);
  EXPECT_EQ(graph.variables()[0].fan_out, 3 * 3 * 8);
  // The forget gate begins as 1.
  std::vector<float> values(graph.space_size());
  InitializeRange(graph, 1, 0, absl::MakeSpan(values));
  const Variable& bias = graph.variables()[2];
  EXPECT_THAT(absl::MakeConstSpan(values).subspan(bias.offset, bias.size), ElementsAre(0, 0, 1, 1, 0, 0, 0, 0));
  const Graph plain = On(kFilm, "conv_lstm2d { filters: 2 kernel_size: 3 unit_forget_bias: false }").value();
  int64_t begin = 0, end = 0;
  EXPECT_FALSE(FindForgetBias(plain, plain.variables()[2], &begin, &end));
}

TEST(ConvLstm, FieldsOfVariablesAreFound) {
  const Graph graph =
      On(kFilm,
         "conv_lstm2d { filters: 2 kernel_size: 3 kernel_regularizer { l2: 0.5 } recurrent_regularizer { l1: 0.25 } "
         "bias_regularizer { l1: 2 } kernel_constraint { kind: NON_NEG } recurrent_constraint { kind: MAX_NORM axis: 3 "
         "} "
         "bias_constraint { kind: NON_NEG } }")
          .value();
  EXPECT_EQ(graph.variables()[0].l2, 0.5f);
  EXPECT_EQ(graph.variables()[1].l1, 0.25f);
  EXPECT_EQ(graph.variables()[2].l1, 2.0f);
  EXPECT_EQ(graph.output().layer.conv_lstm2d().recurrent_constraint().max_value(), 2.0f);
}

TEST(ConvLstm, RefusesByName) {
  struct Case {
    const char *input, *layer, *message;
  };
  const Case cases[] = {
      {kFilm, "conv_lstm2d { kernel_size: 3 }", "filters 0 is not positive"},
      {kFilm, "conv_lstm2d { filters: 2 }", "kernel_size is missing"},
      {kFilm, "conv_lstm2d { filters: 2 kernel_size: [1, 2, 3] }", "kernel_size has 3 numbers"},
      {kFilm, "conv_lstm2d { filters: 2 kernel_size: 0 }", "kernel_size 0 is not positive"},
      {kFilm, "conv_lstm2d { filters: 2 kernel_size: 3 strides: -1 }", "strides -1 is not positive"},
      {kFilm, "conv_lstm2d { filters: 2 kernel_size: 3 strides: 2 dilation_rate: 2 }",
       "strides and dilation_rate are both above 1"},
      {kFilm, "conv_lstm2d { filters: 2 kernel_size: 11 }", "is larger than its input [10,12,3]"},
      {kRows, "conv_lstm1d { filters: 2 kernel_size: 3 padding: CAUSAL }", "padding CAUSAL is not one that it has"},
      {kFilm, "conv_lstm2d { filters: 2 kernel_size: 3 padding: 9 }", "padding 9"},
      {kFilm, "conv_lstm2d { filters: 2 kernel_size: 3 dropout: 1 }", "dropout 1 is outside [0, 1)"},
      {kFilm, "conv_lstm2d { filters: 2 kernel_size: 3 recurrent_dropout: 2 }", "recurrent_dropout 2 is outside"},
      {kFilm, "conv_lstm2d { filters: 2 kernel_size: 3 activation: SOFTMAX }", "activation SOFTMAX is not one"},
      {kFilm, "conv_lstm2d { filters: 2 kernel_size: 3 recurrent_activation: SOFTMAX }",
       "recurrent_activation SOFTMAX"},
      {kFilm, "conv_lstm2d { filters: 2 kernel_size: 3 bias_initializer { kind: ORTHOGONAL } }", "has one axis"},
      {kFilm, "conv_lstm1d { filters: 2 kernel_size: 3 }",
       "its input is [7,10,12,3]; it needs [steps, width, channels]"},
      {kRows, "conv_lstm2d { filters: 2 kernel_size: 3 }", "it needs [steps, height, width, channels]"},
      {kFilm, "conv_lstm3d { filters: 2 kernel_size: 3 }", "it needs [steps, depth, height, width, channels]"},
      {kFilm,
       "bidirectional { layer { conv_lstm2d { filters: 2 kernel_size: 3 } } backward_layer { conv_lstm2d { filters: 2 "
       "kernel_size: 5 go_backwards: true } } }",
       "layer gives [8,10,2], backward_layer [6,8,2]; only the last axis may differ"},
      {kFilm, "bidirectional { merge_mode: SUM layer { conv_lstm2d { filters: 2 kernel_size: 3 return_cell: true } } }",
       "return_cell: states are not merged by SUM"},
      {kFilm,
       "bidirectional { merge_mode: AVE layer { conv_lstm2d { filters: 2 kernel_size: 3 } } backward_layer { "
       "conv_lstm2d { filters: 3 kernel_size: 3 go_backwards: true } } }",
       "units 2 and 3 cannot be merged by AVE"},
      {kVolumes, "dense { units: 2 }", "its input [7,6,10,12,3] has 5 axes, and a dense takes at most 4"},
      {kVolumes, "conv3d { filters: 2 kernel_size: 3 }", "and a conv3d takes at most 4"},
      {kRows, "time_distributed { layer { time_distributed { layer { reshape { target_shape: [1, 1, 1, 3] } } } } }",
       "the output of a step is [10,1,1,1,3], which has more axes than 4; put a flatten"},
      {kVolumes, "time_distributed { layer { conv_lstm3d { filters: 2 kernel_size: 3 } } }",
       "layer: a conv_lstm3d is not supported there"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.layer);
    EXPECT_THAT(On(c.input, c.layer).status().message(), AllOf(HasSubstr("layer \"y\""), HasSubstr(c.message)));
  }
  EXPECT_THAT(BuildText("layers { name: 'x' input { shape: [2, 3, 4, 5, 6] } } layers { name: 'y' inputs: ['x', 'x'] "
                        "concatenate { axis: 2 } }")
                  .status()
                  .message(),
              HasSubstr("axis: its input [2,3,4,5,6] has 5 axes, and such inputs are joined along the last one alone"));
  EXPECT_THAT(On("[1, 2, 3, 4, 5, 6]", "flatten {}").status().message(), HasSubstr("shape has 6 dimensions"));
}

TEST(ConvLstm, FirstStatesMustFit) {
  const auto build = [](const std::string& second, const std::string& inputs) {
    return BuildText(
               "layers { name: 'x' input { shape: [7, 5, 6, 3] } } layers { name: 'h' inputs: 'x' slice { axes { drop: "
               "true } axes { begin: 1 end: 4 } axes { end: 4 } axes { end: 2 } } } " +
               second + " layers { name: 'y' inputs: [" + inputs + "] conv_lstm2d { filters: 2 kernel_size: 3 } }")
        .status();
  };
  const std::string step = "layers { name: 'c' inputs: 'x' slice { axes { drop: true } } }";
  EXPECT_TRUE(build("", "'x', 'h', 'h'").ok()) << build("", "'x', 'h', 'h'");
  EXPECT_THAT(build(step, "'x', 'h', 'c'").message(), HasSubstr("its first state is [5,6,3]; it needs [3,4,2]"));
  EXPECT_THAT(build("", "'x', 'h'").message(), HasSubstr("none or both of its first states h and c"));
  EXPECT_THAT(build("", "'x', 'h', 'h', 'h'").message(), HasSubstr("has 4 inputs"));
}

TEST(ConvLstm, MaskGoesOnBehindSequences) {
  const auto mask_behind = [](const std::string& fields) {
    const Graph graph =
        BuildText(
            "layers { name: 'm' input { shape: [7, 12] } } layers { name: 'e' masking {} } layers { time_distributed { "
            "layer { reshape { target_shape: [2, 3, 2] } } } } layers { conv_lstm2d { filters: 2 kernel_size: 2 " +
            fields + " } }")
            .value();
    return graph.output().mask;
  };
  EXPECT_EQ(mask_behind("return_sequences: true"), 1);
  EXPECT_EQ(mask_behind(""), -1);
}

// The window of the state has strides of 1 and SAME, whatever that of the input is.
TEST(ConvLstm, WindowsOfInputAndState) {
  const Graph graph = On(kFilm, "conv_lstm2d { filters: 2 kernel_size: [2, 3] strides: [2, 3] padding: SAME }").value();
  const RecurrentWindows windows = RecurrentLayerOf(graph, graph.output()).recurrences[0].windows;
  EXPECT_EQ(windows.axes, 2);
  EXPECT_THAT(windows.sides, ElementsAre(5, 4));
  EXPECT_EQ(windows.positions(), 20);
  EXPECT_THAT(windows.input.strides, ElementsAre(2, 3));
  EXPECT_THAT(windows.state.strides, ElementsAre(1, 1));
  EXPECT_THAT(windows.state.kernel, ElementsAre(2, 3));
  EXPECT_THAT(windows.state.pad_begin, ElementsAre(0, 1));  // an odd place at the end
  EXPECT_THAT(windows.state.pad_end, ElementsAre(1, 1));
}

}  // namespace
}  // namespace cairn
