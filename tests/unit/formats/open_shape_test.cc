// Goal: open dimensions of an input, null in Keras' JSON and -1 in layers, are closed by a shape and by the fields of
// the data; shapes that do not fit, and models with several inputs, are refused; what is closed stays as it is.
#include "common/formats/open_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/formats/expand_model.h"
#include "common/model/graph.h"
#include "tests/unit/formats/keras_text.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

using testing::HasSubstr;

std::string Pictures(const std::string& sides) {
  return R"({"class_name": "Sequential", "config": {"name": "s", "layers": [)" +
         KerasLayerText("InputLayer", R"("name": "i", "batch_shape": [null, )" + sides + "]") + "," +
         KerasLayerText("Conv2D", R"("name": "c", "filters": 2, "kernel_size": [3, 3])") + "," +
         KerasLayerText("Flatten", R"("name": "f")") + "," +
         KerasLayerText("Dense", R"("name": "d", "units": 2, "activation": "softmax")") + "]}}";
}

v1::Model ModelOf(const std::string& json) {
  v1::Model model;
  model.set_keras_json(json);
  return model;
}

TEST(OpenShape, IsFoundAndClosedInKerasJson) {
  v1::Model model = ModelOf(Pictures("null, null, 3"));
  EXPECT_TRUE(HasOpenShape(model));
  EXPECT_THAT(ExpandModel(&model).message(), HasSubstr("null,null,3] is open; say data.image_height"));
  ASSERT_TRUE(CloseShape({8, 6, 3}, &model).ok());
  EXPECT_FALSE(HasOpenShape(model));
  ASSERT_TRUE(ExpandModel(&model).ok());
  const auto graph = Graph::Build(model);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(graph->input_shape(), (Shape{8, 6, 3}));
  // A layer whose kernel needs the closed shape has it: 6 x 4 pixels of two filters.
  EXPECT_EQ(graph->variables()[2].shape, (Shape{48, 2}));
}

TEST(OpenShape, IsFoundInTheFirstLayerOfASequential) {
  const std::string first =
      R"({"class_name": "Sequential", "config": {"name": "s", "layers": [)" +
      KerasLayerText("Dense", R"("name": "d", "units": 2, "batch_input_shape": [null, null, 5])") + "]}}";
  v1::Model model = ModelOf(first);
  EXPECT_TRUE(HasOpenShape(model));
  ASSERT_TRUE(CloseShape({60}, &model).ok());
  ASSERT_TRUE(ExpandModel(&model).ok());
  EXPECT_EQ(Graph::Build(model)->input_shape(), (Shape{12, 5}));
}

TEST(OpenShape, IsClosedByFieldsOfTheData) {
  v1::JobSpec spec;
  *spec.mutable_model() = ModelOf(Pictures("null, null, 3"));
  *spec.mutable_data() = FromText<v1::Data>("image_height: 9 image_width: 7");
  ASSERT_TRUE(ExpandJob(&spec).ok());
  EXPECT_EQ(Graph::Build(spec.model())->input_shape(), (Shape{9, 7, 3}));
  *spec.mutable_model() = FromText<v1::Model>("layers { input { shape: [-1, 5] } } layers { flatten {} }");
  *spec.mutable_data() = FromText<v1::Data>("tfrecord { shape: [4, 5] }");
  ASSERT_TRUE(ExpandJob(&spec).ok());
  EXPECT_EQ(Graph::Build(spec.model())->input_shape(), (Shape{4, 5}));
  // Channels are not known of pictures.
  *spec.mutable_model() = ModelOf(Pictures("null, null, null"));
  *spec.mutable_data() = FromText<v1::Data>("image_height: 9 image_width: 7");
  EXPECT_THAT(ExpandJob(&spec).message(), HasSubstr("[null,9,7,null] is open"));
}

TEST(OpenShape, RefusesWhatDoesNotFit) {
  const std::pair<std::string, Shape> cases[] = {
      {"null, null, 3", {8, 6, 1}}, {"null, null, 3", {8, 6}}, {"null, 5", {61}}, {"null, null", {60}}};
  for (const auto& [sides, shape] : cases) {
    v1::Model model = ModelOf(Pictures(sides));
    EXPECT_THAT(CloseShape(shape, &model).message(), HasSubstr("cannot be " + ToString(shape))) << sides;
    EXPECT_TRUE(HasOpenShape(model));
  }
  // Closed dimensions whose product is 0 in 64 bits.
  for (const std::string sides : {"null, 4294967296, 4294967296", "null, 65536, 65536, 65536, 65536", "null, 0"}) {
    v1::Model model = ModelOf(Pictures(sides));
    EXPECT_THAT(CloseShape({60}, &model).message(), HasSubstr("cannot be [60]")) << sides;
  }
  v1::Model layers = FromText<v1::Model>("layers { input { shape: [-1, 65536, 65536, 65536, 65536] } }");
  EXPECT_THAT(CloseShape({60}, &layers).message(),
              HasSubstr("model.layers[0].input.shape: the model's input [null,65536,65536,65536,65536] cannot be [60]; "
                        "a shape that fits has 5 axes, and is the same where the input is not null"));
  v1::Model two = FromText<v1::Model>("layers { input { shape: -1 } } layers { input { shape: 3 } }");
  EXPECT_THAT(CloseShape({3}, &two).message(), HasSubstr("several inputs"));
  EXPECT_THAT(
      Graph::Build(FromText<v1::Model>("layers { input { shape: -1 } } layers { flatten {} }")).status().message(),
      HasSubstr("shape [-1] is open, and nothing closes it; say data.image_height"));
}

TEST(OpenShape, SaysWhichFieldDoesNotFit) {
  v1::JobSpec spec;
  *spec.mutable_model() = ModelOf(Pictures("null, 5"));
  *spec.mutable_data() = FromText<v1::Data>("image_height: 9 image_width: 7");
  EXPECT_THAT(
      ExpandJob(&spec).message(),
      HasSubstr("data.image_height and data.image_width: model.keras_json: the model's input [null,5] cannot be "
                "[9,7,null]; a shape that fits has 2 axes"));
  *spec.mutable_data() = FromText<v1::Data>("tfrecord { shape: [4, 6] }");
  EXPECT_THAT(ExpandJob(&spec).message(), HasSubstr("data.tfrecord.shape: model.keras_json: "));
}

TEST(OpenShape, LeavesClosedModelsAndBadOnesAlone) {
  const std::string closed = Pictures("8, 6, 3");
  for (const std::string& text :
       {closed, std::string("no JSON"), std::string("[1, 2]"),
        std::string(R"({"config": {"layers": [{"config": {"batch_shape": [null, "x"]}}]}})")}) {
    v1::Model model = ModelOf(text);
    EXPECT_FALSE(HasOpenShape(model)) << text;
    CloseShape({8, 6, 3}, &model).IgnoreError();
    EXPECT_EQ(model.keras_json(), text);
  }
}

// An image of any size beside a text of any length.
constexpr char kTwo[] = R"({"class_name": "Functional", "config": {"name": "two", "layers": [
  {"class_name": "InputLayer", "config": {"batch_shape": [null, null, null, 3], "name": "image"}, "name": "image",
   "inbound_nodes": []},
  {"class_name": "InputLayer", "config": {"batch_shape": [null, null], "name": "text"}, "name": "text",
   "inbound_nodes": []},
  {"class_name": "Flatten", "config": {"name": "flat"}, "name": "flat", "inbound_nodes": [[["image", 0, 0, {}]]]},
  {"class_name": "Concatenate", "config": {"name": "both"}, "name": "both",
   "inbound_nodes": [[["flat", 0, 0, {}], ["text", 0, 0, {}]]]}],
  "input_layers": [["image", 0, 0], ["text", 0, 0]], "output_layers": [["both", 0, 0]]}})";

TEST(OpenShape, OfSeveralInputsIsClosedByName) {
  v1::Model model = ModelOf(kTwo);
  ASSERT_TRUE(CloseInput("text", {7}, &model).ok());
  EXPECT_TRUE(HasOpenShape(model));
  EXPECT_THAT(
      std::string(CloseShape({4, 4, 3}, &model).message()),
      HasSubstr("several inputs, of which \"image\" is open; give data.inputs { input: \"image\" shape: ... }"));
  EXPECT_THAT(std::string(CloseInput("sound", {3}, &model).message()),
              HasSubstr("the model has no input \"sound\"; the first one is \"image\""));
  EXPECT_THAT(std::string(CloseInput("image", {4, 4, 1}, &model).message()), HasSubstr("cannot be [4,4,1]"));
  ASSERT_TRUE(CloseInput("image", {4, 2, 3}, &model).ok());
  EXPECT_FALSE(HasOpenShape(model));
  ASSERT_TRUE(ExpandModel(&model).ok());
  EXPECT_EQ(Graph::Build(model)->output().output, (Shape{31}));

  v1::Model layers =
      FromText<v1::Model>(R"(layers { name: "a" input { shape: -1 } } layers { name: "b" input { shape: -1 } }
                                           layers { inputs: ["a", "b"] concatenate { } })");
  ASSERT_TRUE(CloseInput("b", {2}, &layers).ok());
  ASSERT_TRUE(CloseInput("a", {3}, &layers).ok());
  EXPECT_EQ(Graph::Build(layers)->output().output, (Shape{5}));
}

TEST(OpenShape, OfSeveralInputsIsClosedByTheDatasSources) {
  v1::JobSpec spec;
  *spec.mutable_model() = ModelOf(kTwo);
  *spec.mutable_data() = FromText<v1::Data>(R"(
      inputs { input: "text" columns: ["0", "1", "2"] }
      inputs { input: "image" columns: ["3", "4", "5", "6", "7", "8"] shape: [1, 2, 3] })");
  ASSERT_TRUE(ExpandJob(&spec).ok());
  EXPECT_EQ(Graph::Build(spec.model())->output().output, (Shape{9}));

  *spec.mutable_model() = ModelOf(kTwo);
  spec.mutable_data()->mutable_inputs(1)->clear_shape();
  EXPECT_THAT(std::string(ExpandJob(&spec).message()), HasSubstr("data.inputs[1].columns"));
  spec.mutable_data()->mutable_inputs(1)->set_input("picture");
  EXPECT_THAT(std::string(ExpandJob(&spec).message()), HasSubstr("the model has no input \"picture\""));
}

}  // namespace
}  // namespace cairn
