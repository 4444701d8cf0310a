// Goal: ConvLSTM1D, ConvLSTM2D and ConvLSTM3D come from Keras' descriptions, as Keras 3 and 2 write them, and go back
// with every option, their states and their weights; what Cairn does not have is refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/formats/keras_archive.h"
#include "common/formats/keras_weights.h"
#include "tests/unit/formats/keras_reading.h"
#include "tests/unit/formats/keras_text.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// As keras.layers.ConvLSTM2D(2, (3, 2), ...).get_config() of Keras 3, behind the common part.
std::string Options() {
  return absl::StrCat(
      R"("return_sequences": true, "return_state": false, "go_backwards": false, "stateful": false, "unroll": false,
      "zero_output_for_mask": false, "filters": 2, "kernel_size": [3, 2], "strides": [2, 1], "padding": "same",
      "data_format": "channels_last", "dilation_rate": [1, 1], "activation": "tanh", "recurrent_activation":
      "hard_sigmoid", "use_bias": true, "kernel_initializer": )",
      Keras3Initializer("GlorotUniform", R"("seed": null)"), R"(, "recurrent_initializer": )",
      Keras3Initializer("Orthogonal", R"("seed": null, "gain": 1.0)"), R"(, "bias_initializer": )",
      Keras3Initializer("Zeros"), R"(, "unit_forget_bias": true, "kernel_regularizer": null, "recurrent_regularizer":
      null, "bias_regularizer": null, "activity_regularizer": null, "kernel_constraint": null, "recurrent_constraint":
      null, "bias_constraint": null, "dropout": 0.25, "recurrent_dropout": 0.5, "seed": 7)");
}

std::string Film(const std::string& options, const std::string& type = "ConvLSTM2D") {
  return absl::StrCat(R"({"class_name": "Sequential", "config": {"name": "s", "layers": [{"class_name": "InputLayer",
      "config": {"batch_shape": [null, 4, 8, 6, 3], "dtype": "float32", "name": "x"}}, )",
                      Keras3Layer(type, "l", options), "]}}");
}

TEST(KerasConvLstm, AsKeras3WritesIt) {
  const Graph graph =
      ReadGraph(Keras3Functional(absl::StrCat(Keras3Input("image", "[null, 4, 8, 6, 3]"), ",",
                                              Keras3Node("ConvLSTM2D", "l", Options(), Keras3Tensor("image"))),
                                 "l"));
  EXPECT_EQ(graph.output().kind, LayerKind::kConvLSTM2D);
  EXPECT_THAT(graph.output().output, ElementsAre(4, 4, 6, 2));
  const v1::ConvLSTM& m = graph.output().layer.conv_lstm2d();
  EXPECT_THAT(m.kernel_size(), ElementsAre(3, 2));
  EXPECT_THAT(m.strides(), ElementsAre(2, 1));
  EXPECT_EQ(m.padding(), v1::SAME);
  EXPECT_EQ(m.recurrent_activation(), v1::HARD_SIGMOID);
  EXPECT_EQ(m.dropout(), 0.25f);
  EXPECT_EQ(m.recurrent_dropout(), 0.5f);
  EXPECT_TRUE(m.return_sequences());
}

// Keras 2 has other names of what it does not ask for, another hard_sigmoid and numbers without lists.
TEST(KerasConvLstm, AsKeras2WritesIt) {
  const std::string layer = R"({"class_name": "ConvLSTM2D", "config": {"name": "conv_lst_m2d", "trainable": true,
      "dtype": "float32", "return_sequences": false, "return_state": false, "go_backwards": true, "stateful": false,
      "unroll": false, "time_major": false, "filters": 2, "kernel_size": [3, 3], "strides": [1, 1], "padding": "valid",
      "data_format": "channels_last", "dilation_rate": [2, 2], "activation": "tanh", "recurrent_activation":
      "hard_sigmoid", "use_bias": true, "kernel_initializer": {"class_name": "GlorotUniform", "config": {"seed": null}},
      "recurrent_initializer": {"class_name": "Orthogonal", "config": {"gain": 1.0, "seed": null}},
      "bias_initializer": {"class_name": "Zeros", "config": {}}, "unit_forget_bias": true, "kernel_regularizer": null,
      "recurrent_regularizer": null, "bias_regularizer": null, "activity_regularizer": null, "kernel_constraint": null,
      "recurrent_constraint": null, "bias_constraint": null, "dropout": 0.0, "recurrent_dropout": 0.0}})";
  const Graph graph = ReadGraph(R"({"class_name": "Sequential", "config": {"name": "net", "layers": [
      {"class_name": "InputLayer", "config": {"batch_input_shape": [null, 4, 8, 6, 3], "dtype": "float32", "sparse":
      false, "ragged": false, "name": "input_1"}}, )" +
                                layer + R"(]}, "keras_version": "2.15.0", "backend": "tensorflow"})");
  EXPECT_THAT(graph.output().output, ElementsAre(4, 2, 2));
  EXPECT_TRUE(graph.output().layer.conv_lstm2d().go_backwards());
  EXPECT_EQ(graph.output().layer.conv_lstm2d().recurrent_activation(), v1::HARD_SIGMOID_KERAS2);
}

TEST(KerasConvLstm, WhatIsNotThereIsRefusedByName) {
  const std::pair<std::pair<const char*, const char*>, const char*> cases[] = {
      {{"\"stateful\": false", "\"stateful\": true"}, "stateful: true is not supported"},
      {{"\"return_state\": false", "\"return_state\": true"}, "it gives several outputs"},
      {{"\"channels_last\"", "\"channels_first\""}, "data_format: \"channels_first\" is not supported"},
      {{"\"same\"", "\"causal\""}, "padding"},
      {{"[3, 2]", "[3, 2, 2]"}, "kernel_size: 3 numbers; give 2"},
      {{"\"zero_output_for_mask\": false", "\"zero_output_for_mask\": true"}, "zero_output_for_mask: true"},
      {{"\"kernel_constraint\": null", "\"kernel_constraint\": {\"class_name\": \"Mine\"}"}, "kernel_constraint: Mine"},
      {{"\"seed\": 7", "\"seed\": 7, \"peephole\": true"}, "peephole"},
  };
  for (const auto& [change, message] : cases) {
    const std::string error = ErrorOf(Film(absl::StrReplaceAll(Options(), {change})));
    EXPECT_THAT(error, HasSubstr(absl::StrCat("layer \"l\" (ConvLSTM2D): ", message)));
  }
}

std::vector<std::string> Layers() {
  return {
      "conv_lstm2d { filters: 2 kernel_size: 3 return_sequences: true go_backwards: true use_bias: false }",
      "conv_lstm2d { filters: 2 kernel_size: [3, 1] strides: [1, 2] padding: SAME dropout: 0.1 recurrent_dropout: 0.2 "
      "unit_forget_bias: false recurrent_regularizer { l2: 0.1 } activity_regularizer { l1: 0.5 } }",
      "conv_lstm2d { filters: 2 kernel_size: 2 dilation_rate: [1, 3] activation: RELU recurrent_activation: LINEAR "
      "recurrent_initializer { kind: ORTHOGONAL gain: 0.5 } bias_initializer { kind: ONES } }",
      "bidirectional { merge_mode: AVE layer { name: 'r' conv_lstm2d { filters: 2 kernel_size: 3 return_sequences: "
      "true } } }",
      "bidirectional { layer { conv_lstm2d { filters: 2 kernel_size: 3 padding: SAME go_backwards: true } } "
      "backward_layer { name: 'o' conv_lstm2d { filters: 3 kernel_size: 2 padding: SAME } } }",
      "time_distributed { layer { conv_lstm1d { filters: 2 kernel_size: 3 strides: 2 } } }",
  };
}

class KerasConvLstmRoundTrip : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Layers, KerasConvLstmRoundTrip, testing::ValuesIn(Layers()),
                         [](const auto& info) { return absl::StrCat("Layer", info.index); });

TEST_P(KerasConvLstmRoundTrip, EveryOptionComesBackAndSoDoWeights) {
  const Graph graph =
      Graph::Build(FromText<v1::Model>("layers { name: 'x' input { shape: [4, 7, 6, 3] } } layers { name: 'y' " +
                                       GetParam() + " } layers { flatten {} } layers { dense { units: 1 } }"))
          .value();
  const Graph again = ReadGraph(KerasModelJson("m", graph).value());
  EXPECT_EQ(again.nodes()[1].layer.DebugString(), graph.nodes()[1].layer.DebugString());

  const std::string path = absl::StrCat(testing::TempDir(), "/conv_lstm_", ::getpid(), ".keras");
  std::vector<float> space(graph.space_size());
  for (size_t i = 0; i < space.size(); ++i) space[i] = static_cast<float>(i) + 0.5f;
  ASSERT_TRUE(WriteKerasArchive(path, "m", graph, space).ok());
  const absl::StatusOr<SafetensorsFile> weights = ReadKerasArchiveWeights(path);
  std::filesystem::remove(path);
  ASSERT_TRUE(weights.ok()) << weights.status();
  ASSERT_EQ(weights->tensors.size(), graph.variables().size());
  for (size_t i = 0; i < graph.variables().size(); ++i) {
    EXPECT_EQ(weights->tensors[i].name, graph.variables()[i].name);
    EXPECT_EQ(weights->tensors[i].data.floats()[0], space[graph.variables()[i].offset]);
  }
}

// ---- states ----

std::string Tensor(const std::string& layer, int index = 0) {
  return absl::StrReplaceAll(Keras3Tensor(layer), {{", 0, 0]", absl::StrCat(", 0, ", index, "]")}});
}

std::string Cell(const std::string& type, const std::string& name, const std::string& options, const std::string& args,
                 const std::string& kwargs = "") {
  return Keras3Node(type, name, absl::StrCat(R"("filters": 2, "kernel_size": 3, "padding": "same", )", options), args,
                    kwargs);
}

std::string StateOptions(bool sequences) {
  return absl::StrCat(R"("return_state": true, "return_sequences": )", sequences ? "true" : "false");
}

// An encoder of a film whose states are the first ones of a decoder, of each number of sides.
TEST(KerasConvLstm, StatesGoFromOneLayerToAnother) {
  for (int axes = 1; axes <= 3; ++axes) {
    for (const bool sequences : {false, true}) {
      SCOPED_TRACE(absl::StrCat(axes, sequences ? " sequences" : ""));
      const std::string type = absl::StrCat("ConvLSTM", axes, "D");
      const std::string shape = axes == 1   ? "[null, 4, 5, 3]"
                                : axes == 2 ? "[null, 4, 5, 6, 3]"
                                            : "[null, 4, 5, 6, 7, 3]";
      const Graph graph = ReadGraph(Keras3Functional(
          absl::StrCat(
              Keras3Input("image", shape), ",", Cell(type, "encoder", StateOptions(sequences), Tensor("image")), ",",
              Cell(type, "decoder", R"("return_sequences": true)", Tensor("image"),
                   absl::StrCat(R"("initial_state": [)", Tensor("encoder", 1), ",", Tensor("encoder", 2), "]"))),
          "decoder"));
      ASSERT_EQ(graph.nodes().size(), 5u);  // with h and c of the encoder
      const Node& encoder = graph.nodes()[1];
      EXPECT_EQ(encoder.output.back(), 6);
      const Node& c = graph.nodes()[graph.output().inputs[2]];
      ASSERT_EQ(c.kind, LayerKind::kSlice);
      EXPECT_EQ(c.output.size(), static_cast<size_t>(axes) + 1);
      const v1::Slice& slice = c.layer.slice();
      EXPECT_EQ(slice.axes(slice.axes_size() - 1).begin(), 4);
      EXPECT_EQ(slice.axes(0).drop(), sequences);

      const std::string json = KerasModelJson("net", graph).value();
      EXPECT_THAT(json, HasSubstr("\"initial_state_shape\""));
      const Graph again = ReadGraph(json);
      ASSERT_EQ(again.nodes().size(), graph.nodes().size());
      EXPECT_EQ(again.parameters(), graph.parameters());
      for (size_t i = 0; i < graph.nodes().size(); ++i) {
        EXPECT_EQ(again.nodes()[i].kind, graph.nodes()[i].kind);
        EXPECT_EQ(again.nodes()[i].output, graph.nodes()[i].output);
        EXPECT_EQ(again.nodes()[i].inputs, graph.nodes()[i].inputs);
      }
    }
  }
}

TEST(KerasConvLstm, StatesOfBothDirections) {
  const auto layer = [](const std::string& name, const char* backwards) {
    return absl::StrCat(R"({"module": "keras.layers", "class_name": "ConvLSTM2D", "config": {"name": ")", name,
                        R"(", "filters": 2, "kernel_size": [3, 3], "go_backwards": )", backwards,
                        R"(, "return_sequences": true, "return_state": true}, "registered_name": null})");
  };
  const std::string both = Keras3Node("Bidirectional", "b",
                                      absl::StrCat(R"("merge_mode": "concat", "layer": )", layer("forward_l", "false"),
                                                   R"(, "backward_layer": )", layer("backward_l", "true")),
                                      Tensor("image"));
  const Graph graph = ReadGraph(Keras3Functional(
      absl::StrCat(Keras3Input("image", "[null, 4, 5, 6, 3]"), ",", both, ",",
                   Keras3Node("Concatenate", "y", "", absl::StrCat("[", Tensor("b", 1), ",", Tensor("b", 4), "]"))),
      "y"));
  EXPECT_THAT(graph.output().output, ElementsAre(3, 4, 4));
  const v1::Slice& cell = graph.nodes()[graph.output().inputs[1]].layer.slice();
  EXPECT_EQ(cell.axes(0).begin(), 0);  // the second direction ends at the first step
  EXPECT_EQ(cell.axes(3).begin(), 10);
  EXPECT_EQ(ReadGraph(KerasModelJson("net", graph).value()).parameters(), graph.parameters());
}

}  // namespace
}  // namespace cairn
