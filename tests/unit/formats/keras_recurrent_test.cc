// Goal: recurrent layers, Bidirectional, TimeDistributed and masks come from Keras' descriptions, as Keras 3 and 2
// write them, and go back to them with every option; weights stand in the groups in which Keras puts them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/formats/keras_archive.h"
#include "common/formats/keras_model.h"
#include "common/formats/keras_weights.h"
#include "common/model/graph.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

using testing::HasSubstr;

// As keras.layers.LSTM(2, ...).get_config() of Keras 3.
std::string LstmConfig(const std::string& name, bool sequences, bool backwards) {
  return absl::StrCat(
      R"({"name": ")", name, R"(", "trainable": true, "dtype": {"module": "keras", "class_name": "DTypePolicy",
      "config": {"name": "float32"}, "registered_name": null}, "return_sequences": )",
      sequences ? "true" : "false", R"(, "return_state": false, "go_backwards": )", backwards ? "true" : "false", R"(,
      "stateful": false, "unroll": false, "zero_output_for_mask": )",
      sequences ? "true" : "false", R"(, "units": 2, "activation": "tanh", "recurrent_activation": "sigmoid",
      "use_bias": true, "kernel_initializer": {"module": "keras.initializers", "class_name": "GlorotUniform",
      "config": {"seed": null}, "registered_name": null}, "recurrent_initializer": {"module": "keras.initializers",
      "class_name": "Orthogonal", "config": {"seed": null, "gain": 1.0}, "registered_name": null}, "bias_initializer":
      {"module": "keras.initializers", "class_name": "Zeros", "config": {}, "registered_name": null},
      "unit_forget_bias": true, "kernel_regularizer": null, "recurrent_regularizer": null, "bias_regularizer": null,
      "activity_regularizer": null, "kernel_constraint": null, "recurrent_constraint": null, "bias_constraint": null,
      "dropout": 0.25, "recurrent_dropout": 0.0, "seed": null})");
}

std::string Sequential(const std::string& layers) {
  return R"({"class_name": "Sequential", "config": {"name": "s", "layers": [{"class_name": "InputLayer", "config":
  {"batch_shape": [null, 5, 3], "dtype": "float32", "name": "x"}}, )" +
         layers + "]}}";
}

TEST(KerasRecurrent, BidirectionalAsKeras3WritesIt) {
  const std::string text = Sequential(
      R"({"class_name": "Masking", "config": {"name": "m", "trainable": true, "dtype": "float32", "mask_value": 0.5}},
      {"class_name": "Bidirectional", "config": {"name": "b", "trainable": true, "dtype": "float32", "merge_mode": "mul",
      "layer": {"module": "keras.layers", "class_name": "LSTM", "config": )" +
      LstmConfig("forward_lstm", true, false) +
      R"(, "registered_name": null}, "backward_layer": {"module": "keras.layers", "class_name": "LSTM", "config": )" +
      LstmConfig("backward_lstm", true, true) + R"(, "registered_name": null}}},
      {"class_name": "TimeDistributed", "config": {"name": "t", "trainable": true, "dtype": "float32", "layer":
      {"module": "keras.layers", "class_name": "Dense", "config": {"name": "d", "trainable": true, "dtype": "float32",
      "units": 4, "activation": "relu", "use_bias": true}, "registered_name": null}}})");
  const absl::StatusOr<KerasModel> read = ReadKerasModel(text);
  ASSERT_TRUE(read.ok()) << read.status();
  const absl::StatusOr<Graph> graph = Graph::Build(read->model);
  ASSERT_TRUE(graph.ok()) << graph.status();
  ASSERT_EQ(graph->variables().size(), 8u);
  EXPECT_EQ(graph->variables()[0].name, "b/forward_lstm/lstm_cell/kernel");
  EXPECT_EQ(graph->variables()[5].name, "b/backward_lstm/lstm_cell/bias");
  EXPECT_EQ(graph->variables()[6].name, "t/d/kernel");
  const v1::Bidirectional& both = graph->nodes()[2].layer.bidirectional();
  EXPECT_EQ(both.merge_mode(), v1::Bidirectional::MUL);
  EXPECT_EQ(both.layer().lstm().dropout(), 0.25f);
  EXPECT_TRUE(both.backward_layer().lstm().go_backwards());
  EXPECT_EQ(graph->nodes()[1].layer.masking().mask_value(), 0.5f);
  EXPECT_EQ(graph->nodes()[2].mask, 1);
  EXPECT_EQ(graph->output().activation, v1::RELU);
}

// Keras 2's names of what it does not ask for.
TEST(KerasRecurrent, LstmAsKeras2WritesIt) {
  std::string config = LstmConfig("l", false, false);
  config = absl::StrReplaceAll(config,
                               {{"\"zero_output_for_mask\": false", "\"time_major\": false, \"implementation\": 2"}});
  const absl::StatusOr<KerasModel> read =
      ReadKerasModel(Sequential(R"({"class_name": "LSTM", "config": )" + config + "}"));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->model.layers(1).lstm().units(), 2);
}

TEST(KerasRecurrent, OptionsThatAreNotThereAreRefusedByName) {
  const std::string plain = LstmConfig("l", false, false);
  const std::pair<std::pair<const char*, const char*>, const char*> cases[] = {
      {{"\"stateful\": false", "\"stateful\": true"}, "stateful: true is not supported"},
      {{"\"return_state\": false", "\"return_state\": true"}, "it gives several outputs"},
      {{"\"recurrent_constraint\": null", "\"recurrent_constraint\": {\"class_name\": \"MyConstraint\"}"},
       "recurrent_constraint: MyConstraint is not supported"},
      {{"\"activity_regularizer\": null", "\"activity_regularizer\": {\"class_name\": \"OrthogonalRegularizer\"}"},
       "activity_regularizer"},
      {{"\"zero_output_for_mask\": false", "\"zero_output_for_mask\": true"}, "zero_output_for_mask: true"},
  };
  for (const auto& [change, message] : cases) {
    const std::string text =
        Sequential(R"({"class_name": "LSTM", "config": )" + absl::StrReplaceAll(plain, {change}) + "}");
    EXPECT_THAT(ReadKerasModel(text).status().message(), HasSubstr(absl::StrCat("layer \"l\" (LSTM): ", message)));
  }
  EXPECT_THAT(ReadKerasModel(Sequential(R"({"class_name": "Bidirectional", "config": {"name": "b", "merge_mode": null,
              "layer": {"class_name": "LSTM", "config": )" +
                                        plain + "}}}"))
                  .status()
                  .message(),
              HasSubstr("layer \"b\" (Bidirectional): it gives several outputs"));
}

std::vector<std::string> Layers() {
  return {
      "simple_rnn { units: 2 activation: RELU use_bias: false go_backwards: true return_sequences: true }",
      "simple_rnn { units: 2 dropout: 0.1 recurrent_dropout: 0.2 recurrent_regularizer { l2: 0.1 } }",
      "lstm { units: 2 unit_forget_bias: false recurrent_activation: LINEAR kernel_regularizer { l1: 0.1 } }",
      "lstm { units: 2 recurrent_initializer { kind: IDENTITY gain: 0.5 } bias_initializer { kind: ONES } }",
      "gru { units: 2 reset_after: false bias_regularizer { l1: 0.1 } return_sequences: true }",
      "gru { units: 2 kernel_initializer { kind: ORTHOGONAL gain: 0.25 } }",
      "bidirectional { merge_mode: AVE layer { name: 'r' gru { units: 2 return_sequences: true } } }",
      "bidirectional { layer { lstm { units: 2 go_backwards: true } } backward_layer { name: 'o' gru { units: 3 } } }",
      "time_distributed { layer { dense { units: 3 activation: TANH } } }",
      "time_distributed { layer { layer_normalization { epsilon: 0.1 } } }",
      "masking { mask_value: -1.5 }",
  };
}

class KerasRecurrentRoundTrip : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Layers, KerasRecurrentRoundTrip, testing::ValuesIn(Layers()),
                         [](const auto& info) { return absl::StrCat("Layer", info.index); });

TEST_P(KerasRecurrentRoundTrip, EveryOptionComesBackAndSoDoWeights) {
  const Graph graph =
      Graph::Build(FromText<v1::Model>("layers { name: 'x' input { shape: [5, 3] } } layers { name: 'y' " + GetParam() +
                                       " } layers { flatten {} } layers { dense { units: 1 } }"))
          .value();
  const absl::StatusOr<KerasModel> read = ReadKerasModel(KerasModelJson("m", graph).value());
  ASSERT_TRUE(read.ok()) << read.status();
  const absl::StatusOr<Graph> again = Graph::Build(read->model);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->nodes()[1].layer.DebugString(), graph.nodes()[1].layer.DebugString());

  const std::string path = absl::StrCat(testing::TempDir(), "/recurrent_", ::getpid(), ".keras");
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

TEST(KerasRecurrent, FirstStatesAreAnArgumentOfTheCall) {
  const Graph graph =
      Graph::Build(FromText<v1::Model>(
                       "layers { name: 'x' input { shape: [5, 3] } } layers { name: 'flat' flatten {} } layers { name: "
                       "'h' dense { units: 2 } } layers { name: 'c' inputs: 'flat' dense { units: 2 } } layers { name: "
                       "'y' inputs: ['x', 'h', 'c'] lstm { units: 2 } }"))
          .value();
  const std::string json = KerasModelJson("m", graph).value();
  EXPECT_THAT(json, HasSubstr("\"kwargs\":{\"initial_state\":[{\"class_name\":\"__keras_tensor__\""));
  EXPECT_THAT(json, HasSubstr("\"initial_state_shape\":[[null,2],[null,2]]"));
  const KerasModel read = ReadKerasModel(json).value();
  for (const v1::Layer& layer : read.model.layers()) {
    if (layer.name() != "y") continue;
    EXPECT_THAT(std::vector<std::string>(layer.inputs().begin(), layer.inputs().end()),
                testing::ElementsAre("x", "h", "c"));
  }
}

}  // namespace
}  // namespace cairn
