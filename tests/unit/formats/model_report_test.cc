// Goal: a report names every layer of a model with its own reason, not the first one's alone, and says with what a
// model can be trained as the check of a job does.
#include "common/formats/model_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/formats/keras_model.h"
#include "common/model/ready_made/ready_made.h"
#include "tests/unit/formats/keras_text.h"
#include "tests/unit/formats/onnx/small_model.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::vector<std::string> Lines(const std::vector<LayerReport>& layers) {
  std::vector<std::string> lines;
  for (const LayerReport& layer : layers) lines.push_back(absl::StrCat(layer.name, " ", layer.type, ": ", layer.why));
  return lines;
}

TEST(ModelReport, NamesEachLayerOfKeras) {
  const std::string inner = absl::StrCat(R"({"class_name": "Sequential", "config": {"name": "inner", "layers": [)",
                                         KerasLayerText("Dense", R"("name": "d", "units": 4, "lora_rank": 8)"), ",",
                                         KerasLayerText("ReLU", R"("name": "r", "dtype": "mixed_float16")"), "]}}");
  const std::string text = Keras2Sequential(
      absl::StrCat(KerasLayerText("Lambda", R"("name": "fn", "function": "x")"), ",",
                   R"({"module": "my", "class_name": "Swirl", "config": {"name": "s"}, "registered_name": "my>Swirl"})",
                   ",", inner, ",", KerasLayerText("Flatten", R"("name": "f")"), ",",
                   KerasLayerText("Dense", R"("name": "out", "units": "no")")));
  const absl::StatusOr<KerasReport> report = ReportKerasModel(text);
  ASSERT_TRUE(report.ok()) << report.status();
  const std::vector<std::string> lines = Lines(report->layers);
  ASSERT_EQ(lines.size(), 7u);
  EXPECT_EQ(lines[0], "input_1 InputLayer: ");
  EXPECT_THAT(lines[1], HasSubstr("fn Lambda: Lambda is not supported: it calls Python code"));
  EXPECT_EQ(lines[2],
            "s Swirl: my>Swirl is a class of your own, whose Python code no worker can run; use layers of Keras, or "
            "train the model as a "
            "program of your own (docs/programs.md)");
  EXPECT_EQ(lines[3], "inner/d Dense: lora_rank: 8 is not supported; leave it out");
  EXPECT_EQ(lines[4], "inner/r ReLU: ");
  EXPECT_EQ(lines[5], "f Flatten: ");
  EXPECT_EQ(lines[6], "out Dense: units: \"no\" is not a whole number within 32 bits");
  EXPECT_THAT(report->notes, ElementsAre("dtype mixed_float16: the variables are float32; the products too, unless the "
                                         "job says compute_dtype: FLOAT16"));
  // JSON in JSON, and what is none.
  EXPECT_EQ(ReportKerasModel(nlohmann::json(text).dump())->layers.size(), 7u);
  EXPECT_FALSE(ReportKerasModel("[]").ok());
  EXPECT_FALSE(ReportKerasModel("{").ok());
  EXPECT_THAT(ReportKerasModel(R"({"class_name": "Sequential", "config": 3})")->layers, IsEmpty());
}

// An operation that Cairn lacks, beside those that it has, and one whose arguments only the whole model shows to be
// wrong.
TEST(ModelReport, NamesOperationsThatCairnLacks) {
  const auto node = [](const std::string& type, const std::string& name, const std::string& of,
                       const std::string& config = "") {
    return absl::StrCat(R"({"module": "keras.src.ops.numpy", "class_name": ")", type, R"(", "config": {"name": ")",
                        name, "\"", config, R"(}, "registered_name": ")", type, R"(", "name": ")", name,
                        R"(", "inbound_nodes": [{"args": [)", Keras3Tensor(of), R"(], "kwargs": {}}]})");
  };
  const auto model = [&](const std::string& last) {
    return Keras3Functional(absl::StrCat(Keras3Input("image", "[null, 8, 8, 3]"), ",", node("Exp", "exp", "image"), ",",
                                         node("Flip", "flip", "exp", R"(, "axis": 1)"), ",", last),
                            "last");
  };
  const auto unknown = ReportKerasModel(model(node("Sinc", "last", "flip")));
  ASSERT_TRUE(unknown.ok()) << unknown.status();
  ASSERT_EQ(unknown->layers.size(), 4u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(unknown->layers[static_cast<size_t>(i)].why, "");
  EXPECT_THAT(unknown->layers[3].why, HasSubstr("Cairn does not have this operation on tensors"));
  const std::string text = model(node("Squeeze", "last", "flip", R"(, "axis": 1)"));
  auto known = ReportKerasModel(text);
  ASSERT_TRUE(known.ok()) << known.status();
  const absl::Status whole = ReadKerasModel(text).status();
  ASSERT_FALSE(whole.ok());
  EXPECT_EQ(known->layers[3].why, "");
  NoteError(whole, &known->layers);
  EXPECT_THAT(known->layers[3].why, HasSubstr("one that it names is not 1"));
  EXPECT_EQ(known->layers[2].why, "");
}

// What comes of a refused operator is looked at as far as it can be.
TEST(ModelReport, NamesEachOperatorOfOnnx) {
  char name[] = "/tmp/cairn_report_XXXXXX";
  CAIRN_CHECK(mkdtemp(name) != nullptr, "a temporary directory");
  const std::string path = absl::StrCat(name, "/m.onnx");
  const auto lines = [&](const onnx::ModelProto& model) {
    std::ofstream(path, std::ios::binary) << model.SerializeAsString();
    const auto report = ReportOnnxFile(path);
    CAIRN_CHECK(report.ok(), report.status().ToString());
    return Lines(*report);
  };
  onnx::ModelProto model = Small();
  EXPECT_THAT(lines(model), ElementsAre("conv1 Conv: ", "relu1 Relu: ", "flat Flatten: ", "fc Gemm: "));
  Insert("Swirl", {}, &model);
  Find("fc", &model)->set_op_type("Whirl");
  SetInts("strides", {0, 1}, Find("conv1", &model));
  EXPECT_THAT(lines(model), ElementsAre("conv1 Conv: attribute \"strides\": 0 is outside 1 .. 1048576",
                                        "relu1 Relu: ", "new Swirl: Cairn has no layer for this operator",
                                        "flat Flatten: ", "fc Whirl: Cairn has no layer for this operator"));
  model.clear_opset_import();
  std::ofstream(path, std::ios::binary) << model.SerializeAsString();
  EXPECT_EQ(ReportOnnxFile(path).status().message(), path + ": it names no opset; is this an ONNX model?");
  std::filesystem::remove_all(name);
}

TEST(ModelReport, SaysWithWhatAModelTrains) {
  const auto report = [](const std::string& layers) { return ReportTraining(FromText<v1::Model>(layers)); };
  const TrainingReport classes =
      report("layers { input { shape: [28, 28, 1] } } layers { flatten {} } layers { dense { units: 10 } }");
  EXPECT_THAT(classes.losses, Contains("SPARSE_CATEGORICAL_CROSSENTROPY"));
  EXPECT_EQ(classes.why, "");
  EXPECT_THAT(classes.data, ElementsAre("IMAGE_FOLDER of pictures, resized to [28,28,1]", "IDX of [28,28,1]",
                                        "TFRECORD of 784 numbers, or pictures"));
  // One output tells no classes apart.
  const TrainingReport one = report("layers { input { shape: 5 } } layers { dense { units: 1 } }");
  EXPECT_THAT(one.losses, Contains("MEAN_SQUARED_ERROR"));
  EXPECT_THAT(one.losses, Not(Contains("SPARSE_CATEGORICAL_CROSSENTROPY")));
  EXPECT_THAT(one.data, ElementsAre("CSV of 5 columns besides the label", "TFRECORD of 5 numbers"));
  // A class for each step.
  const TrainingReport steps = report("layers { input { shape: [7, 3] } } layers { dense { units: 4 } }");
  EXPECT_THAT(steps.losses, Contains("SPARSE_CATEGORICAL_CROSSENTROPY"));
  EXPECT_THAT(steps.losses, Contains("MEAN_SQUARED_ERROR"));
  EXPECT_THAT(steps.data, ElementsAre("TFRECORD of 21 numbers, and data.targets { feature: ... }"));
  EXPECT_EQ(steps.why, "");
  const TrainingReport none = report("layers { input { shape: 5 } } layers { activation { activation: RELU } }");
  EXPECT_THAT(none.losses, IsEmpty());
  EXPECT_EQ(none.why, "model.layers: no layer has anything to train; add a dense or conv2d layer");
}

}  // namespace
}  // namespace cairn
