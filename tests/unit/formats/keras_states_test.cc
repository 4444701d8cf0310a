// Goal: recurrent layers of Keras with several outputs (return_state, merge_mode=None) become layers with one, each
// output that is taken a part of them; they go out again as outputs; what would not mean the same is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/formats/keras_archive.h"
#include "tests/unit/formats/keras_reading.h"
#include "tests/unit/formats/keras_text.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string Tensor(const std::string& layer, int index = 0) {
  return absl::StrReplaceAll(Keras3Tensor(layer), {{", 0, 0]", absl::StrCat(", 0, ", index, "]")}});
}

std::string Lstm(const std::string& name, const std::string& options, const std::string& args,
                 const std::string& kwargs = "") {
  return Keras3Node("LSTM", name, absl::StrCat(R"("units": 2)", options.empty() ? "" : ", ", options), args, kwargs);
}

std::string ModelOf(const std::vector<std::string>& layers, const std::string& output,
                    const std::string& input = Keras3Input("image", "[null, 5, 3]")) {
  return Keras3Functional(absl::StrCat(input, ",", absl::StrJoin(layers, ",")), output);
}

const Node& NamedNode(const Graph& graph, const std::string& name) {
  for (const Node& node : graph.nodes()) {
    if (node.name == name) return node;
  }
  ADD_FAILURE() << name;
  return graph.nodes()[0];
}

void ExpectRoundTrip(const Graph& graph) {
  const absl::StatusOr<std::string> json = KerasModelJson("net", graph);
  ASSERT_TRUE(json.ok()) << json.status();
  const Graph again = ReadGraph(*json);
  ASSERT_EQ(again.nodes().size(), graph.nodes().size()) << *json;
  EXPECT_EQ(again.parameters(), graph.parameters());
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    EXPECT_EQ(again.nodes()[i].output, graph.nodes()[i].output);
    EXPECT_EQ(again.nodes()[i].inputs, graph.nodes()[i].inputs);
    EXPECT_EQ(again.nodes()[i].kind, graph.nodes()[i].kind);
    EXPECT_EQ(again.nodes()[i].mask, graph.nodes()[i].mask);
  }
}

// An encoder whose last states are a decoder's first ones, as in the tutorials.
TEST(KerasStates, AnEncoderAndADecoder) {
  const Graph graph = ReadGraph(
      ModelOf({Lstm("encoder", R"("return_state": true)", Tensor("image")),
               Lstm("decoder", R"("return_sequences": true, "return_state": true)", Tensor("image"),
                    absl::StrCat(R"("initial_state": [)", Tensor("encoder", 1), ",", Tensor("encoder", 2), "]")),
               Keras3Node("Dense", "d", R"("units": 4)", Tensor("decoder"))},
              "d"));
  ASSERT_EQ(graph.nodes().size(), 6u);  // with h and c of the encoder
  EXPECT_TRUE(NamedNode(graph, "encoder").layer.lstm().return_cell());
  EXPECT_FALSE(NamedNode(graph, "decoder").layer.lstm().return_cell());  // its states are not taken
  const Node& decoder = NamedNode(graph, "decoder");
  ASSERT_EQ(decoder.inputs.size(), 3u);
  const v1::Slice &h = graph.nodes()[decoder.inputs[1]].layer.slice(),
                  &c = graph.nodes()[decoder.inputs[2]].layer.slice();
  EXPECT_EQ(h.axes(0).begin(), 2);
  EXPECT_EQ(h.axes(0).end(), 4);
  EXPECT_EQ(c.axes(0).begin(), 4);
  EXPECT_EQ(c.axes(0).end(), 6);
  ExpectRoundTrip(graph);
}

// All of a layer's outputs; the mask of the input is that of the first one.
TEST(KerasStates, OutputsOfASequenceHaveItsMask) {
  const Graph graph = ReadGraph(ModelOf(
      {Keras3Node("Embedding", "e", R"("input_dim": 4, "output_dim": 3, "mask_zero": true)", Tensor("image")),
       Lstm("l", R"("return_sequences": true, "return_state": true)", Tensor("e")), Lstm("of_l", "", Tensor("l")),
       Keras3Node("Concatenate", "y", "",
                  absl::StrCat("[", Tensor("of_l"), ",", Tensor("l", 1), ",", Tensor("l", 2), "]"))},
      "y", Keras3Input("image", "[null, 5]")));
  const Node& lstm = NamedNode(graph, "of_l");
  EXPECT_EQ(graph.nodes()[lstm.inputs[0]].mask, 1);
  EXPECT_THAT(graph.output().output, ElementsAre(6));
  const Node& state = graph.nodes()[graph.output().inputs[1]];
  EXPECT_EQ(state.layer.slice().axes(0).begin(), -1);
  EXPECT_TRUE(state.layer.slice().axes(0).drop());
  EXPECT_EQ(state.mask, -1);
  ExpectRoundTrip(graph);
}

std::string Both(const std::string& type, const std::string& inner, const std::string& mode, const std::string& args) {
  const auto layer = [&](const std::string& name, const char* backwards) {
    return absl::StrCat(R"({"module": "keras.layers", "class_name": ")", type, R"(", "config": {"name": ")", name,
                        R"(", "units": 2, "go_backwards": )", backwards, ", ", inner, R"(}, "registered_name": null})");
  };
  return Keras3Node("Bidirectional", "b",
                    absl::StrCat(R"("merge_mode": )", mode, R"(, "layer": )", layer("forward_lstm", "false"),
                                 R"(, "backward_layer": )", layer("backward_lstm", "true")),
                    args);
}

TEST(KerasStates, OfBothDirections) {
  const std::string all = R"("return_sequences": true, "return_state": true)";
  const auto taking = [&](const std::string& layer, const std::vector<int>& outputs) {
    std::vector<std::string> list;
    for (const int output : outputs) list.push_back(Tensor("b", output));
    return ModelOf({layer, Keras3Node("Concatenate", "y", "", absl::StrCat("[", absl::StrJoin(list, ","), "]"))}, "y");
  };
  const std::string x = Tensor("image");
  // The states of the second direction stand at the first step.
  const Graph states = ReadGraph(taking(Both("LSTM", all, R"("concat")", x), {1, 2, 3, 4}));
  EXPECT_THAT(states.output().output, ElementsAre(8));
  const v1::Slice& cell = states.nodes()[states.output().inputs[3]].layer.slice();
  EXPECT_EQ(cell.axes(0).begin(), 0);
  EXPECT_EQ(cell.axes(1).begin(), 10);
  EXPECT_EQ(cell.axes(1).end(), 12);
  ExpectRoundTrip(states);
  // The sum of what the directions give, and a state.
  const Graph sum =
      ReadGraph(ModelOf({Both("LSTM", all, R"("sum")", x), Keras3Node("Flatten", "f", "", Tensor("b")),
                         Keras3Node("Concatenate", "y", "", absl::StrCat("[", Tensor("f"), ",", Tensor("b", 1), "]"))},
                        "y"));
  EXPECT_EQ(sum.nodes()[sum.nodes()[sum.output().inputs[0]].inputs[0]].kind, LayerKind::kAdd);
  const Graph again = ReadGraph(KerasModelJson("net", sum).value());  // in another order
  EXPECT_EQ(again.nodes().size(), sum.nodes().size());
  EXPECT_EQ(again.parameters(), sum.parameters());
  // Two outputs that are not merged.
  const Graph apart = ReadGraph(taking(Both("GRU", R"("return_sequences": true)", "null", x), {0, 1}));
  EXPECT_THAT(apart.output().output, ElementsAre(5, 4));
  EXPECT_EQ(apart.nodes()[apart.output().inputs[1]].layer.slice().axes(1).begin(), 2);
  EXPECT_THAT(ErrorOf(taking(Both("LSTM", all, R"("concat")", x), {1, 5})), HasSubstr("it has no output 5"));
}

TEST(KerasStates, AreRefusedWhereTheyWouldDiffer) {
  const std::string masked = Keras3Node("Masking", "m", R"("mask_value": 0.0)", Tensor("image"));
  EXPECT_THAT(ErrorOf(ModelOf({masked, Both("GRU", R"("return_sequences": true)", "null", Tensor("m")),
                               Keras3Node("Add", "y", "", absl::StrCat("[", Tensor("b"), ",", Tensor("b", 1), "]"))},
                              "y")),
              HasSubstr("layer \"b\": steps of its input are masked, and its outputs are taken apart"));
  EXPECT_THAT(ErrorOf(R"({"class_name": "Sequential", "config": {"name": "s", "layers": [{"class_name": "InputLayer",
      "config": {"batch_shape": [null, 5, 3], "dtype": "float32", "name": "x"}}, {"class_name": "LSTM", "config":
      {"name": "l", "units": 2, "return_state": true}}]}})"),
              HasSubstr("layer \"l\" (LSTM): it gives several outputs, but the next layer of a Sequential takes one"));
  // What takes the cell's states of all steps is no output of Keras.
  const Graph graph =
      Graph::Build(
          FromText<v1::Model>("layers { input { shape: [5, 3] } } layers { name: 'l' lstm { units: 2 "
                              "return_sequences: true return_cell: true } } layers { slice { axes {} axes { begin: "
                              "4 } } }"))
          .value();
  EXPECT_THAT(std::string(KerasModelJson("net", graph).status().message()),
              HasSubstr("layer \"l\": what takes its states takes none of the outputs that it has in Keras"));
}

}  // namespace
}  // namespace cairn
