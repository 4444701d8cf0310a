// Goal: an input of shape () has Keras' meaning: which shapes layers give that take it, and which layers refuse it
// where Keras would mix the examples of a batch; a softmax over several axes.
#include "common/formats/keras_scalars.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/unit/formats/keras_reading.h"
#include "tests/unit/formats/keras_text.h"

namespace cairn {
namespace {

using testing::HasSubstr;

// x: of shape (), wide: of shape (3,).
std::string ModelOf(const std::string& layers) {
  return Keras3Functional(absl::StrCat(Keras3Input("x", "[null]"), ",", Keras3Input("wide", "[null, 3]"), ",", layers),
                          "y", R"([["x", 0, 0], ["wide", 0, 0]])");
}

std::string Of(const std::string& type, const std::string& config, const std::string& input = "x") {
  return Keras3Node(type, "y", config, Keras3Tensor(input));
}

std::string Both(const std::string& type) {
  return Keras3Node(type, "y", "", absl::StrCat("[", Keras3Tensor("x"), ",", Keras3Tensor("wide"), "]"));
}

// Of what the layer "y" gives.
Shape ShapeOf(const std::string& layers) {
  const std::string text =
      Keras3Functional(absl::StrCat(Keras3Input("x", "[null]"), ",", layers), "y", R"([["x", 0, 0]])");
  return ReadGraph(text).output().output;
}

TEST(KerasScalars, LayersGiveKerasShapes) {
  EXPECT_EQ(ShapeOf(Of("Embedding", R"("input_dim": 5, "output_dim": 4)")), (Shape{4}));
  EXPECT_EQ(ShapeOf(Of("CategoryEncoding", R"("num_tokens": 6, "output_mode": "one_hot")")), (Shape{6}));
  EXPECT_EQ(ShapeOf(Of("Rescaling", R"("scale": 0.5, "offset": 1)")), (Shape{1}));
  EXPECT_EQ(ShapeOf(Of("Reshape", R"("target_shape": [1, 1])")), (Shape{1, 1}));
  EXPECT_EQ(ShapeOf(absl::StrCat(Keras3Node("Hashing", "h", R"("num_bins": 7)", Keras3Tensor("x")), ",",
                                 Of("Embedding", R"("input_dim": 7, "output_dim": 2)", "h"))),
            (Shape{2}));
}

TEST(KerasScalars, RefusesWhatMixesExamples) {
  EXPECT_THAT(ErrorOf(ModelOf(Of("Dense", R"("units": 2)"))),
              HasSubstr("layer \"y\" (Dense): its input has the shape (), one number an example without an axis"));
  EXPECT_THAT(ErrorOf(ModelOf(Both("Concatenate"))), HasSubstr("layer \"y\" (Concatenate): one of its inputs has the "
                                                               "shape (), and another one has axes"));
  EXPECT_THAT(ErrorOf(ModelOf(Both("Add"))), HasSubstr("layer \"y\" (Add): one of its inputs"));
  EXPECT_THAT(ErrorOf(ModelOf(Of("CategoryEncoding", R"("num_tokens": 6, "output_mode": "count")"))),
              HasSubstr("output_mode is neither int nor one_hot"));
  EXPECT_THAT(ErrorOf(ModelOf(Of("Embedding", R"("input_dim": 5, "output_dim": 4, "mask_zero": true)"))),
              HasSubstr("mask_zero: its input has the shape ()"));
}

TEST(KerasScalars, TextsWithoutAnAxis) {
  const std::string text = Keras3Functional(
      absl::StrCat(R"({"class_name": "InputLayer", "config": {"batch_shape": [null], "dtype": "string", "name": "t"},
                      "name": "t", "inbound_nodes": []},)",
                   Keras3Node("Hashing", "h", R"("num_bins": 7)", Keras3Tensor("t")), ",",
                   Of("Embedding", R"("input_dim": 7, "output_dim": 2)", "h")),
      "y", R"([["t", 0, 0]])");
  const Graph graph = ReadGraph(text);
  EXPECT_EQ(graph.output().output, (Shape{2}));
  EXPECT_EQ(graph.nodes()[0].layer.input().shape_size(), 1);
}

std::string SoftmaxOf(const std::string& axis) {
  return Keras3Functional(
      absl::StrCat(Keras3Input("x", "[null, 2, 3, 4]"), ",", Of("Softmax", absl::StrCat("\"axis\": ", axis))), "y",
      R"([["x", 0, 0]])");
}

TEST(KerasSoftmax, GoesOverSeveralAxes) {
  const Graph last = ReadGraph(SoftmaxOf("[-1, 2]"));  // axes 2 and 3: they are the last ones
  ASSERT_EQ(last.nodes().size(), 4u);
  EXPECT_EQ(last.nodes()[1].output, (Shape{2, 12}));
  EXPECT_EQ(last.output().output, (Shape{2, 3, 4}));
  const Graph first = ReadGraph(SoftmaxOf("[1, 2]"));
  ASSERT_EQ(first.nodes().size(), 6u);
  EXPECT_EQ(first.nodes()[1].output, (Shape{4, 2, 3}));
  EXPECT_EQ(first.nodes()[2].output, (Shape{4, 6}));
  EXPECT_EQ(first.output().output, (Shape{2, 3, 4}));
  EXPECT_THAT(ErrorOf(SoftmaxOf("[1, 7]")), HasSubstr("(Softmax): axis: one that it names is not an axis"));
  EXPECT_THAT(ErrorOf(SoftmaxOf("[1, -3]")), HasSubstr("(Softmax): axis names one twice"));
}

}  // namespace
}  // namespace cairn
