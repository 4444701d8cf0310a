// Goal: a TimeDistributed of a model comes in as that model of TimeDistributed layers, Sequential and Functional, as
// Keras 3 and 2 write it, with its weights from where Keras puts them; it goes out as such a model. What cannot be
// computed for each step is refused by its name.
#include "common/formats/keras_step_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/formats/hdf5_file.h"
#include "common/formats/keras_archive.h"
#include "common/formats/model_report.h"
#include "common/formats/zip_file.h"
#include "tests/unit/formats/keras_reading.h"
#include "tests/unit/formats/keras_text.h"

namespace cairn {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kConvolution[] = R"("filters": 2, "kernel_size": [3, 3], "activation": "relu")";

std::string Chain(const std::string& name, const std::string& layers) {
  return absl::StrCat(R"({"module": "keras", "class_name": "Sequential", "config": {"name": ")", name,
                      R"(", "trainable": true, "layers": [)", layers, R"(], "build_input_shape": [null, 8, 8, 3]},
    "registered_name": null, "build_config": {"input_shape": [null, 8, 8, 3]}})");
}

// The TimeDistributed "frames" of a model.
std::string Frames(const std::string& model, const std::string& more = "") {
  return absl::StrCat(R"({"module": "keras.layers", "class_name": "TimeDistributed", "config": {)",
                      Keras3Common("frames"), R"(, "layer": )", model,
                      R"(}, "registered_name": null, "build_config": {"input_shape": [null, 4, 8, 8, 3]})", more, "}");
}

std::string Classifier() {
  return Chain("cnn",
               absl::StrCat(Keras3Input("x", "[null, 8, 8, 3]"), ", ", Keras3Layer("Conv2D", "a", kConvolution), ", ",
                            Keras3Layer("Dropout", "b", R"("rate": 0.5)"), ", ", Keras3Layer("Flatten", "c", "")));
}

std::string Video(const std::string& frames) {
  return Chain("video", absl::StrCat(Keras3Input("film", "[null, 4, 8, 8, 3]"), ", ", frames, ", ",
                                     Keras3Layer("LSTM", "l", R"("units": 2)")));
}

std::vector<std::string> NamesOf(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes()) names.push_back(node.name);
  return names;
}

// What a step of the Functional model within "frames" is, as Keras 3 describes it.
std::string Branches(const std::string& layers, const std::string& output) {
  return Keras3Functional(absl::StrCat(Keras3Input("image", "[null, 8, 8, 3]"), ", ", layers), output);
}

std::string Within(const std::string& model) {
  return Keras3Functional(
      absl::StrCat(Keras3Input("film", "[null, 4, 8, 8, 3]"), ", ",
                   Frames(model, absl::StrCat(R"(, "name": "frames", "inbound_nodes": [{"args": [)",
                                              Keras3Tensor("film"), R"(], "kwargs": {"mask": null}}])"))),
      "frames", R"([["film", 0, 0]])");
}

TEST(KerasStepModels, SequentialBecomesOneOfDistributedLayers) {
  const Graph graph = ReadGraph(Video(Frames(Classifier())));
  EXPECT_THAT(NamesOf(graph), ElementsAre("film", "a", "b", "c", "l"));
  EXPECT_THAT(graph.nodes()[1].output, ElementsAre(4, 6, 6, 2));
  EXPECT_THAT(graph.nodes()[3].output, ElementsAre(4, 72));
  for (const int id : {1, 2, 3}) EXPECT_EQ(graph.nodes()[static_cast<size_t>(id)].kind, LayerKind::kTimeDistributed);
  EXPECT_EQ(graph.variables()[0].name, "a/a/kernel");
  ASSERT_EQ(graph.submodels().size(), 1u);
  EXPECT_EQ(graph.submodels()[0].name(), "frames");
  EXPECT_TRUE(graph.submodels()[0].sequential());

  const Graph again = ReadGraph(KerasModelJson("m", graph).value());
  EXPECT_EQ(NamesOf(again), NamesOf(graph));
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    EXPECT_EQ(again.nodes()[i].layer.DebugString(), graph.nodes()[i].layer.DebugString());
  }
  ASSERT_EQ(again.submodels().size(), 1u);
  EXPECT_EQ(again.submodels()[0].name(), "frames");
  EXPECT_TRUE(again.submodels()[0].sequential());
}

// Keras 2 gives the shape of the first layer of a model to it, and that of the model to the TimeDistributed.
TEST(KerasStepModels, OfKeras2WithoutInputLayers) {
  const std::string cnn =
      R"({"class_name": "Sequential", "config": {"name": "cnn", "layers": [{"class_name": "Conv2D", "config": {"name":
      "a", "batch_input_shape": [null, 8, 8, 3], "filters": 2, "kernel_size": [3, 3]}}, {"class_name": "Flatten",
      "config": {"name": "c"}}]}})";
  const auto video = [&](const std::string& shape) {
    return absl::StrCat(R"({"class_name": "Sequential", "config": {"name": "video", "layers": [{"class_name":
      "TimeDistributed", "config": {"name": "frames", )",
                        shape, R"("layer": )", cnn, R"(}}]}, "keras_version": "2.15.0"})");
  };
  const Graph graph = ReadGraph(video(R"("batch_input_shape": [null, 4, 8, 8, 3], )"));
  EXPECT_THAT(graph.input_shape(), ElementsAre(4, 8, 8, 3));
  EXPECT_THAT(graph.output().output, ElementsAre(4, 72));
  // Without a shape of its own the number of steps is open.
  const absl::StatusOr<KerasModel> open = ReadKerasModel(video(""));
  EXPECT_FALSE(open.ok() && Graph::Build(open->model).ok());
}

TEST(KerasStepModels, BranchesAreJoinedAsAWhole) {
  const Graph graph = ReadGraph(Within(Branches(
      absl::StrCat(Keras3Node("Conv2D", "a", R"("filters": 3, "kernel_size": [1, 1])", Keras3Tensor("image")), ", ",
                   Keras3Node("BatchNormalization", "n", R"("axis": 3)", Keras3Tensor("a"), R"("mask": null)"), ", ",
                   Keras3Node("Dropout", "d", R"("rate": 0.5)", Keras3Tensor("n"), R"("training": false)"), ", ",
                   Keras3Node("Add", "s", "", absl::StrCat("[", Keras3Tensor("d"), ", ", Keras3Tensor("image"), "]")),
                   ", ",
                   Keras3Node("Concatenate", "j", R"("axis": 3)",
                              absl::StrCat("[", Keras3Tensor("s"), ", ", Keras3Tensor("image"), "]")),
                   ", ", Keras3Node("GlobalAveragePooling2D", "g", R"("keepdims": false)", Keras3Tensor("j"))),
      "g")));
  EXPECT_THAT(NamesOf(graph), ElementsAre("film", "a", "n", "d", "s", "j", "g"));
  EXPECT_EQ(graph.nodes()[2].layer.time_distributed().layer().kind_case(), v1::Layer::kBatchNormalization);
  // The default that Keras up to 3.9 writes into the calls of a Dropout is not the user's.
  EXPECT_FALSE(graph.nodes()[3].layer.has_training());
  EXPECT_EQ(graph.nodes()[4].kind, LayerKind::kAdd);
  EXPECT_THAT(graph.nodes()[5].output, ElementsAre(4, 8, 8, 6));
  EXPECT_THAT(graph.output().output, ElementsAre(4, 6));
  EXPECT_FALSE(graph.submodels()[0].sequential());
}

// Keras adds the axis that [2] lacks in front of a step, [1,2]; in front of all steps it would be another product.
TEST(KerasStepModels, JoinsOfDifferentNumbersOfAxesAreRefused) {
  const auto read = [](const std::string& type, const std::string& squeezed) {
    return ReadKerasModel(Within(Branches(
        absl::StrCat(
            Keras3Node("Reshape", "rows", R"("target_shape": [64, 3])", Keras3Tensor("image")), ", ",
            Keras3Node("GlobalAveragePooling1D", "gate", R"("keepdims": )" + squeezed, Keras3Tensor("rows")), ", ",
            Keras3Node(type, "j", "", absl::StrCat("[", Keras3Tensor("rows"), ", ", Keras3Tensor("gate"), "]"))),
        "j")));
  };
  for (const char* type : {"Multiply", "Subtract", "Add", "Average", "Maximum"}) {
    EXPECT_EQ(read(type, "false").status().message(),
              absl::StrCat("layer \"j\" (", type,
                           "): in a TimeDistributed of a model it joins inputs with different numbers of axes, "
                           "[4,64,3] and [4,3]; bring them to the same number by Reshape"));
  }
  for (const char* type : {"Multiply", "Subtract"}) {  // the others take equal shapes alone
    const absl::StatusOr<KerasModel> kept = read(type, "true");
    ASSERT_TRUE(kept.ok()) << kept.status();
    EXPECT_THAT(Graph::Build(kept->model).value().output().output, ElementsAre(4, 64, 3));
  }
}

TEST(KerasStepModels, FrozenAsAWhole) {
  std::string frames = Frames(Classifier());
  const std::string own = R"("name": "frames", "trainable": true)";
  frames.replace(frames.find(own), own.size(), R"("name": "frames", "trainable": false)");
  EXPECT_EQ(ReadGraph(Video(frames)).variables()[0].kind, VariableKind::kFrozen);
}

// Keras writes a model's weights below the TimeDistributed's attribute "layer".
TEST(KerasStepModels, WeightsAreReadFromWhereKerasPutsThem) {
  const std::string base = absl::StrCat(testing::TempDir(), "/step_models_", ::getpid());
  const std::string weights = base + ".h5", archive = base + ".keras";
  const Graph graph = ReadGraph(Video(Frames(Classifier())));
  ASSERT_EQ(graph.variables().size(), 5u);
  const std::pair<const char*, int> places[] = {{"layers/time_distributed/layer/layers/conv2d/vars", 2},
                                                {"layers/lstm/cell/vars", 3}};
  auto writer = Hdf5Writer::Create(weights).value();
  size_t variable = 0;
  for (const auto& [group, count] : places) {
    ASSERT_TRUE(writer->AddGroup(group, "g").ok());
    for (int i = 0; i < count; ++i, ++variable) {
      const Variable& v = graph.variables()[variable];
      const std::vector<float> numbers(static_cast<size_t>(v.size), static_cast<float>(variable) + 0.5f);
      ASSERT_TRUE(writer->AddArray(group, absl::StrCat(i), v.shape, numbers).ok());
    }
  }
  ASSERT_TRUE(writer->Close().ok());
  ASSERT_TRUE(
      WriteZip(archive, {{"config.json", Video(Frames(Classifier())), ""}, {"model.weights.h5", "", weights}}).ok());
  const absl::StatusOr<SafetensorsFile> read = ReadKerasArchiveWeights(archive);
  std::filesystem::remove(weights);
  std::filesystem::remove(archive);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->tensors.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(read->tensors[i].name, graph.variables()[i].name);
    EXPECT_EQ(read->tensors[i].data.floats()[0], static_cast<float>(i) + 0.5f);
  }
}

TEST(KerasStepModels, WhatIsNotOfAStepIsRefusedByName) {
  const auto chain = [](const std::string& layer) { return Video(Frames(Chain("cnn", layer))); };
  const std::pair<std::string, const char*> cases[] = {
      {chain(Keras3Layer("Lambda", "f", "")), "layer \"f\" (TimeDistributed): layer: Lambda is not supported"},
      {chain(Keras3Layer("RandomFlip", "f", "")), "layer \"f\" (TimeDistributed): layer: RandomFlip is not supported"},
      {chain(Frames(Classifier())), "layer \"frames\" (TimeDistributed): layer: Sequential is not supported"},
      {Within(Branches(Keras3Node("Dot", "f", R"("axes": [1, 1])",
                                  absl::StrCat("[", Keras3Tensor("image"), ", ", Keras3Tensor("image"), "]")),
                       "f")),
       "layer \"f\""},
  };
  for (const auto& [json, message] : cases) {
    const absl::StatusOr<KerasModel> model = ReadKerasModel(json);
    const absl::Status status = model.ok() ? Graph::Build(model->model).status() : model.status();
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }
}

TEST(KerasStepModels, ReportNamesTheLayersWithin) {
  const KerasReport report =
      ReportKerasModel(Video(Frames(Chain("cnn", absl::StrCat(Keras3Layer("Conv2D", "a", kConvolution), ", ",
                                                              Keras3Layer("Lambda", "f", ""))))))
          .value();
  ASSERT_EQ(report.layers.size(), 4u);
  EXPECT_THAT(report.layers[1], AllOf(Field(&LayerReport::name, "frames/a"), Field(&LayerReport::why, IsEmpty())));
  EXPECT_THAT(report.layers[2],
              AllOf(Field(&LayerReport::name, "frames/f"), Field(&LayerReport::why, HasSubstr("Lambda"))));
}

// Files are hostile: what is not as Keras writes it stays as it is.
TEST(KerasStepModels, LeavesOtherDescriptionsAlone) {
  for (const char* text :
       {"[]", "3", R"({"class_name": "Sequential"})", R"({"class_name": "Sequential", "config": {"layers": 3}})",
        R"({"class_name": "Sequential", "config": {"layers": [{"class_name": "TimeDistributed", "config":
        {"layer": 3}}]}})",
        R"({"class_name": "Sequential", "config": {"layers": [{"class_name": "TimeDistributed", "config": {"layer":
        {"class_name": "Sequential", "config": [1]}}}, null, 1]}})"}) {
    EXPECT_EQ(WithStepsInModels(Json::parse(text)), Json::parse(text));
  }
  const Json odd = Json::parse(
      R"({"class_name": "Sequential", "config": {"layers": [{"class_name": "TimeDistributed", "config": {"layer":
      {"class_name": "Sequential", "config": {"layers": [3, {"class_name": "Add"}, {"class_name": "Dense", "config": 7,
      "build_config": {"input_shape": [1]}}]}}}}]}})");
  EXPECT_NE(WithStepsInModels(odd), odd);
}

}  // namespace
}  // namespace cairn
