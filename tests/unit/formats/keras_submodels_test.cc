// Goal: a model inside a model comes in and goes out as such: which layers are its own, how it is called, and where its
// weights are, as in a file that Keras 3 wrote (an encoder of two outputs and a Sequential, both called several times,
// with layers of equal names). A graph whose submodels do not hold together is refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/formats/keras_archive.h"
#include "common/formats/keras_model.h"
#include "common/formats/keras_weights.h"
#include "common/model/graph.h"
#include "tests/unit/formats/keras_text.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

using Json = nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

std::string Fixture(const std::string& name) {
  const char* source = std::getenv("CAIRN_SOURCE");
  CAIRN_CHECK(source != nullptr, "run by ctest, or set CAIRN_SOURCE to the root of the tree");
  std::stringstream text;
  text << std::ifstream(absl::StrCat(source, "/tests/unit/formats/keras/", name)).rdbuf();
  return text.str();
}

void Histories(const Json& value, std::string* out) {
  if (value.is_object() && value.contains("keras_history")) absl::StrAppend(out, " ", value["keras_history"].dump());
  if (value.is_object() && value.contains("training")) absl::StrAppend(out, " training=", value["training"].dump());
  if (!value.is_structured()) return;
  for (const Json& item : value) Histories(item, out);
}

// One line for each layer, with what it takes; a model's lines follow its own, indented.
void Outline(const Json& model, const std::string& indent, std::vector<std::string>* lines) {
  const Json& config = model["config"];
  for (const Json& layer : config["layers"]) {
    std::string line =
        absl::StrCat(indent, layer["class_name"].get<std::string>(), " ", layer["config"]["name"].get<std::string>());
    if (layer.contains("inbound_nodes")) Histories(layer["inbound_nodes"], &line);
    lines->push_back(line);
    if (layer["config"].contains("layers")) Outline(layer, indent + "  ", lines);
  }
  if (!config.contains("output_layers")) return;
  Json outputs = config["output_layers"], inputs = config["input_layers"];
  if (inputs[0].is_string()) inputs = Json::array({inputs});
  lines->push_back(absl::StrCat(indent, inputs.dump(), " -> ", outputs.dump()));
}

std::vector<std::string> OutlineOf(const std::string& json) {
  std::vector<std::string> lines;
  Outline(Json::parse(json), "", &lines);
  return lines;
}

TEST(KerasSubmodels, GoOutAsTheyCameIn) {
  const std::string json = Fixture("keras_3_16_nested.json");
  const auto model = ReadKerasModel(json);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto graph = Graph::Build(model->model);
  ASSERT_TRUE(graph.ok()) << graph.status();
  ASSERT_EQ(graph->submodels().size(), 2u);
  const v1::Submodel& inner = graph->submodels()[0];
  EXPECT_EQ(inner.name(), "inner");
  ASSERT_EQ(inner.calls_size(), 2);
  EXPECT_THAT(inner.calls(0).inputs(), ElementsAre("x"));
  EXPECT_THAT(inner.calls(0).outputs(), ElementsAre("d", "e"));
  EXPECT_TRUE(inner.calls(1).has_training());
  EXPECT_TRUE(graph->submodels()[1].sequential());
  // Both have a layer "d".
  EXPECT_EQ(graph->submodels()[1].calls(0).outputs(0), "s");
  const auto written = KerasModelJson("outer", *graph);
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(OutlineOf(*written), OutlineOf(json));
  const auto again = ReadKerasModel(*written);
  ASSERT_TRUE(again.ok()) << again.status();
  const auto graph_again = Graph::Build(again->model);
  ASSERT_TRUE(graph_again.ok()) << graph_again.status();
  EXPECT_EQ(KerasModelJson("outer", *graph_again).value(), *written);
  EXPECT_EQ(again->weight_paths, model->weight_paths);
}

// The groups of the weights that Keras saved of the same model.
TEST(KerasSubmodels, HaveTheirWeightsWhereKerasHasThem) {
  const auto model = ReadKerasModel(Fixture("keras_3_16_nested.json"));
  ASSERT_TRUE(model.ok()) << model.status();
  const auto graph = Graph::Build(model->model);
  ASSERT_TRUE(graph.ok()) << graph.status();
  const std::vector<std::string> paths = KerasLayerPaths(*graph);
  std::map<std::string, std::string> by_name;
  for (const Node& node : graph->nodes()) {
    if (node.shares < 0) by_name[node.name] = paths[static_cast<size_t>(node.id)];
    if (node.shares < 0 && !node.variables.empty()) {
      EXPECT_EQ(model->weight_paths[static_cast<size_t>(node.id)], paths[static_cast<size_t>(node.id)]) << node.name;
    }
  }
  EXPECT_EQ(by_name, (std::map<std::string, std::string>{{"x", "layers/input_layer"},
                                                         {"y", "layers/input_layer_1"},
                                                         {"d", "layers/functional/layers/dense"},
                                                         {"e", "layers/functional/layers/dense_1"},
                                                         {"seq/d", "layers/sequential/layers/dense"},
                                                         {"s", "layers/sequential/layers/dense_1"},
                                                         {"cat", "layers/concatenate"},
                                                         {"out", "layers/dense"}}));
}

// It becomes an augmentation of the data.
TEST(KerasSubmodels, OfAugmentationsAloneAreNone) {
  const std::string flip = KerasLayerText("RandomFlip", R"("name": "flip", "mode": "horizontal")");
  const auto model = ReadKerasModel(Keras2Sequential(
      absl::StrCat(KerasLayerText("Sequential", absl::StrCat(R"("name": "head", "layers": [)", flip, "]")), ",",
                   KerasLayerText("Flatten", R"("name": "f")"))));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE(model->model.submodels().empty());
  EXPECT_EQ(model->data.augmentation_size(), 1);
}

std::string Why(const std::string& submodels, const std::string& of_dense = "submodel: 'm'") {
  const auto graph = Graph::Build(FromText<v1::Model>(absl::StrCat(R"(
      layers { name: "x" input { shape: [4] } }
      layers { name: "a" dense { units: 4 } )",
                                                                   of_dense, R"( }
      layers { name: "b" dense { units: 4 } submodel: "m" }
      layers { name: "c" inputs: "b" shares: "a" submodel: "m" }
      layers { name: "d" inputs: "c" shares: "b" submodel: "m" }
      layers { name: "out" dense { units: 2 } })",
                                                                   submodels)));
  return graph.ok() ? "accepted" : std::string(graph.status().message());
}

TEST(KerasSubmodels, ThatDoNotHoldTogetherAreRefused) {
  const std::string first = R"(calls { inputs: "x" outputs: "b" })", second = R"(calls { inputs: "b" outputs: "d" })";
  const auto with = [&](const std::string& fields) { return absl::StrCat("submodels { name: 'm' ", fields, " }"); };
  EXPECT_EQ(Why(with(first + second)), "accepted");
  const std::map<std::string, std::string> cases = {
      {"", "layer \"a\": submodel: \"m\" is not in model.submodels"},
      {with(first), "layer \"c\" is in none of its calls"},
      {with(second + first), "its layers are not those of its first call"},
      {with(first + R"(calls { inputs: "x" outputs: "d" })"), "its layers are not those of its first call"},
      {with(first + R"(calls { inputs: "b" outputs: "c" })"), "its layers are not those of its first call"},
      {with(first + R"(calls { inputs: "b" outputs: "nine" })"), "\"nine\" is not a layer of the model"},
      {with(first + R"(calls { inputs: "b" })"), "inputs or outputs are missing"},
      {with(first + R"(calls { inputs: "b" outputs: "out" })"),
       "its outputs need layer \"out\", which is no part of it"},
      {with(first + R"(calls { inputs: ["b", "x"] outputs: "d" })"), "give each call as many"},
      {with(first + R"(calls { inputs: "b" outputs: "d" training: true })"), "training: true is not supported"},
      {with(""), "calls: empty"},
      {with(first + second + "submodel: 'n'"), "submodel: \"n\" is not one before it"},
      {"submodels { name: 'm' " + first + second + " } submodels { name: 'out' " + first + " }",
       "another layer or submodel has this name"},
  };
  for (const auto& [submodels, error] : cases) EXPECT_THAT(Why(submodels), HasSubstr(error)) << submodels;
  EXPECT_THAT(Why(with(first + second), ""), HasSubstr("its outputs need layer \"a\""));
}

}  // namespace
}  // namespace cairn
