// Goal: operations that move numbers or join tensors (stack, pad, tile, take, one_hot, top_k, einsum) get the shapes
// that numpy gives them, and what does not fit is refused by the field's name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/graph.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A layer y of x [4, 3, 2]; z is as x.
absl::StatusOr<Graph> GraphOf(const std::string& layer, const std::string& shape = "[4, 3, 2]") {
  return Graph::Build(FromText<v1::Model>(
      absl::StrCat("layers { name: 'x' input { shape: ", shape,
                   " } } layers { name: 'z' inputs: 'x' rescaling { scale: 2 } } layers { name: 'y' ", layer, " }")));
}

Shape ShapeOf(const std::string& layer, const std::string& shape = "[4, 3, 2]") {
  const absl::StatusOr<Graph> graph = GraphOf(layer, shape);
  EXPECT_TRUE(graph.ok()) << layer << ": " << graph.status();
  return graph.ok() ? graph->output().output : Shape{};
}

TEST(GraphMoves, HaveTheShapesOfNumpy) {
  EXPECT_THAT(ShapeOf("inputs: ['x', 'z'] stack { axis: 1 }", "[4, 3]"), ElementsAre(2, 4, 3));
  EXPECT_THAT(ShapeOf("inputs: ['x', 'z', 'x'] stack { axis: -1 }", "[4, 3]"), ElementsAre(4, 3, 3));
  EXPECT_THAT(ShapeOf("inputs: ['x', 'z'] stack { axis: -2 }", "[4, 3]"), ElementsAre(4, 2, 3));
  EXPECT_THAT(ShapeOf("pad { before: [1, 0, 2] after: [0, 5, 0] }"), ElementsAre(5, 8, 4));
  EXPECT_THAT(ShapeOf("pad { mode: REFLECT before: [3, 2, 1] after: [3, 0, 0] }"), ElementsAre(10, 5, 3));
  EXPECT_THAT(ShapeOf("pad { mode: SYMMETRIC before: [4, 3, 2] after: [4, 3, 2] }"), ElementsAre(12, 9, 6));
  EXPECT_THAT(ShapeOf("tile { repeats: [1, 2, 3] }"), ElementsAre(4, 6, 6));
  EXPECT_THAT(ShapeOf("take { axis: 1 indices: [0, -4] }"), ElementsAre(2, 3, 2));
  EXPECT_THAT(ShapeOf("take { axis: -1 indices: [1, 0, 1, 1] indices_shape: [2, 2] }"), ElementsAre(4, 3, 2, 2));
  EXPECT_THAT(ShapeOf("one_hot { num_classes: 5 }", "4"), ElementsAre(4, 5));
  EXPECT_THAT(ShapeOf("one_hot { num_classes: 5 axis: 1 }", "[4, 3]"), ElementsAre(5, 4, 3));
  EXPECT_THAT(ShapeOf("top_k { k: 2 }", "[4, 3]"), ElementsAre(4, 2));
  EXPECT_THAT(ShapeOf("top_k { k: 1 indices: true }", "1"), ElementsAre(1));
  EXPECT_THAT(ShapeOf("inputs: ['x', 'z'] einsum { equation: 'bij,bkj->bik' }", "[4, 3]"), ElementsAre(4, 4));
  EXPECT_THAT(ShapeOf("inputs: ['x', 'z'] einsum { equation: 'bijc, bijd -> bcijd' }"), ElementsAre(2, 4, 3, 2));
  EXPECT_THAT(ShapeOf("inputs: ['x', 'z'] einsum { equation: 'bi,bi->b' }", "4"), ElementsAre(1));
}

// What Build fills in is a layer that means the same.
TEST(GraphMoves, FillInWhatBuildTakesAgain) {
  for (const char* layer :
       {"inputs: ['x', 'z'] stack { axis: -1 }", "pad { before: [1, 0] after: [0, 1] }",
        "take { axis: -1 indices: -1 }", "one_hot { num_classes: 3 }", "top_k { k: 2 indices: true }"}) {
    const absl::StatusOr<Graph> once = GraphOf(layer, "[4, 3]");
    ASSERT_TRUE(once.ok()) << layer << ": " << once.status();
    v1::Model model;
    for (const Node& node : once->nodes()) *model.add_layers() = node.layer;
    const absl::StatusOr<Graph> twice = Graph::Build(model);
    ASSERT_TRUE(twice.ok()) << layer << ": " << twice.status();
    EXPECT_EQ(twice->output().layer.DebugString(), once->output().layer.DebugString());
    EXPECT_EQ(twice->output().output, once->output().output);
  }
}

TEST(GraphMoves, RefuseWhatDoesNotFit) {
  struct Case {
    const char *layer, *error;
  };
  for (const Case& c : std::vector<Case>{
           {"inputs: ['x', 'z'] stack { axis: 1 }", "its input [4,3,2,1] has 4 axes; one more is too many"},
           {"pad { before: [1, 0] after: [0, 0, 0] }", "before has 2 numbers, but its input is [4,3,2,1]"},
           {"pad { before: [1, 0, 0, 0] }", "after has 0 numbers"},
           {"pad { before: [-1, 0, 0, 0] after: [0, 0, 0, 0] }", "before -1 is outside 0 .. 1048576"},
           {"pad { mode: REFLECT before: [4, 0, 0, 0] after: [0, 0, 0, 0] }",
            "before 4: mode REFLECT mirrors at most 3 numbers of an axis of 4"},
           {"pad { mode: SYMMETRIC before: [0, 0, 0, 0] after: [0, 0, 0, 2] }",
            "after 2: mode SYMMETRIC mirrors at most 1 numbers of an axis of 1"},
           {"pad { before: [0, 0, 0, 0] after: [0, 0, 0, 1] constant_value: nan }", "constant_value nan is not finite"},
           {"pad { mode: REFLECT before: [0, 0, 0, 0] after: [1, 0, 0, 0] constant_value: 1 }",
            "constant_value is only for mode CONSTANT"},
           {"tile { repeats: 2 }", "repeats has 1 numbers, but its input is [4,3,2,1]"},
           {"tile { repeats: [0, 1, 1, 1] }", "repeats 0 is outside 1 .. 1048576"},
           {"tile { repeats: [1000000, 1000000, 1, 1] }", "too many numbers"},
           {"take { indices: 1 }", "axis is missing; give one of 1 .. 4"},
           {"take { axis: 0 indices: 1 }", "has no axis 0; use 1 .. 4"},
           {"take { axis: 1 }", "indices is missing"},
           {"take { axis: 1 indices: 4 }", "indices 4 is not on an axis of 4; use -4 .. 3"},
           {"take { axis: 1 indices: -5 }", "indices -5 is not on an axis of 4"},
           {"take { axis: 1 indices: [1, 2, 3] indices_shape: 2 }", "indices has 3 numbers, indices_shape holds 2"},
           {"take { axis: 1 indices: 1 indices_shape: -1 }", "indices_shape has a side -1"},
           {"take { axis: 1 indices: 1 indices_shape: [1, 1] }", "its output has 5 axes"},
           {"one_hot { num_classes: 3 }", "one more is too many"},
           {"one_hot {}", "num_classes 0"},
           {"top_k {}", "k 0 is not in 1 .. 1, the size of its input's last axis"},
           {"top_k { k: 2 }", "k 2 is not in 1 .. 1"},
           {"inputs: ['x', 'z'] einsum { equation: 'bhwcd,bhwce->b' }", "is only in the input"},
           {"inputs: ['x', 'z'] einsum { equation: 'bhwcd,ahwcd->b' }", "the first letter is the batch"},
           {"inputs: ['x', 'z'] einsum { equation: 'bhwcd->b' }", "the first letter is the batch"},
           {"inputs: ['x', 'z'] einsum { equation: '...d,...d->...' }", "... is not supported"},
           {"inputs: ['x', 'z'] einsum { equation: 'bhwcd,bhw->bcd' }",
            "its second input has 4 axes after the batch, but the equation has 2"},
           {"inputs: ['x', 'z'] einsum { equation: 'bhwcd,bwhcd->bd' }",
            "\"w\" is 3 in the first input and 4 in the second"},
           {"inputs: ['x', 'z'] einsum { equation: 'bhwcd,befgd->bhwcefg' }", "at most 4 are supported"},
           {"einsum { equation: 'bij,bjk->bik' }", "an einsum joins two layers"},
       }) {
    const absl::StatusOr<Graph> graph = GraphOf(c.layer, "[4, 3, 2, 1]");
    EXPECT_THAT(graph.ok() ? "accepted" : std::string(graph.status().message()), HasSubstr(c.error)) << c.layer;
  }
  EXPECT_THAT(std::string(GraphOf("inputs: ['x', 'z'] stack {}").status().message()),
              HasSubstr("axis is missing; give the place of the new axis, 1 .. 4"));
  EXPECT_THAT(std::string(GraphOf("inputs: ['x', 'z'] stack { axis: 5 }").status().message()),
              HasSubstr("5 is no place for a new axis"));
  EXPECT_THAT(std::string(GraphOf("reduce { kind: COUNT_NONZERO axis: 1 keepdims: true }").status().message()),
              HasSubstr("keepdims is not for kind COUNT_NONZERO"));
}

}  // namespace
}  // namespace cairn
