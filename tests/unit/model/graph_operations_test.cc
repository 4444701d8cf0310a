// Goal: operations on tensors, reductions and parts get the shapes that numpy gives them, and what does not fit is
// refused by the field's name. Shared layers have one set of variables; inputs stand one behind the other in an
// example.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/graph.h"
#include "common/model/model_inputs.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string Model(const std::string& layer, const std::string& shape = "[4, 3, 2]") {
  return absl::StrCat("layers { name: 'x' input { shape: ", shape, " } } layers { name: 'y' inputs: 'x' ", layer, " }");
}

Shape ShapeOf(const std::string& layer, const std::string& shape = "[4, 3, 2]") {
  const absl::StatusOr<Graph> graph = Graph::Build(FromText<v1::Model>(Model(layer, shape)));
  EXPECT_TRUE(graph.ok()) << layer << ": " << graph.status();
  return graph.ok() ? graph->output().output : Shape{};
}

std::string ErrorOf(const std::string& layer, const std::string& shape = "[4, 3, 2]") {
  const absl::StatusOr<Graph> graph = Graph::Build(FromText<v1::Model>(Model(layer, shape)));
  return graph.ok() ? "accepted" : std::string(graph.status().message());
}

TEST(GraphOperations, HaveTheShapesOfNumpy) {
  EXPECT_THAT(ShapeOf("operation { kind: ADD constant: 2 }"), ElementsAre(4, 3, 2));
  EXPECT_THAT(ShapeOf("operation { kind: ADD constant: [1, 2] constant_shape: 2 }"), ElementsAre(4, 3, 2));
  EXPECT_THAT(ShapeOf("operation { kind: ADD constant: [1, 2, 3] constant_shape: 3 }", "[4, 1]"), ElementsAre(4, 3));
  EXPECT_THAT(ShapeOf("operation { kind: SOFTMAX axis: 1 }"), ElementsAre(4, 3, 2));
  EXPECT_THAT(ShapeOf("operation { kind: FULL_LIKE constant: 0.5 }"), ElementsAre(4, 3, 2));
  EXPECT_THAT(ShapeOf("operation { kind: WHERE constant: 1 constant_first: true other_constant: [1, 2, 3] other_shape: "
                      "[1, 3] }",
                      "[4, 1]"),
              ElementsAre(4, 3));
  EXPECT_THAT(ShapeOf("reduce { kind: MEAN axis: [1, -1] }"), ElementsAre(3));
  EXPECT_THAT(ShapeOf("reduce { kind: MEAN axis: [1, -1] keepdims: true }"), ElementsAre(1, 3, 1));
  EXPECT_THAT(ShapeOf("reduce { kind: SUM }"), ElementsAre(1));
  EXPECT_THAT(ShapeOf("slice { axes { begin: 1 } axes { step: -1 } axes { begin: -1 drop: true } }"),
              ElementsAre(3, 3));
  EXPECT_THAT(ShapeOf("slice { axes { begin: -2 end: 100 } axes { begin: 2 end: 0 step: -2 } }"), ElementsAre(2, 1, 2));
  EXPECT_THAT(ShapeOf("slice { axes { step: 3 } }", "7"), ElementsAre(3));
  EXPECT_THAT(ShapeOf("slice { axes { begin: 5 step: -3 } }", "7"), ElementsAre(2));
}

// The fields that Build fills in give a layer with the same meaning.
TEST(GraphOperations, FillInWhatBuildTakesAgain) {
  for (const char* layer :
       {"slice { axes { begin: -1 step: -2 } axes { begin: -1 drop: true } }", "reduce { kind: MAX axis: -2 }",
        "operation { kind: CUMSUM }", "operation { kind: CLIP low: 0.5 }", "operation { kind: NAN_TO_NUM }"}) {
    v1::Model model = FromText<v1::Model>(Model(layer));
    const absl::StatusOr<Graph> once = Graph::Build(model);
    ASSERT_TRUE(once.ok()) << layer << ": " << once.status();
    *model.mutable_layers(1) = once->nodes()[1].layer;
    const absl::StatusOr<Graph> twice = Graph::Build(model);
    ASSERT_TRUE(twice.ok()) << layer << ": " << twice.status();
    EXPECT_EQ(twice->nodes()[1].layer.DebugString(), once->nodes()[1].layer.DebugString());
    EXPECT_EQ(twice->output().output, once->output().output);
  }
}

TEST(GraphOperations, RefuseWhatDoesNotFit) {
  struct Case {
    const char *layer, *error;
  };
  for (const Case& c : std::vector<Case>{
           {"operation {}", "kind 0 is missing or not known"},
           {"operation { kind: ADD }", "kind ADD is of 2 operands, but it has 1 inputs and no constant"},
           {"operation { kind: EXP constant: 1 }", "kind EXP takes no constant; leave it out"},
           {"operation { kind: MATMUL constant: 1 }", "kind MATMUL takes no constant"},
           {"operation { kind: ADD constant: [1, 2] }", "constant has 2 numbers, constant_shape holds 1"},
           {"operation { kind: ADD constant: 1 constant_shape: 0 }", "constant_shape has a side 0"},
           {"operation { kind: ADD constant: [1, 2, 3] constant_shape: 3 }", "differ in an axis that is 1 in neither"},
           {"operation { kind: ADD constant: 1 constant_shape: [1, 1, 1, 1] }", "has more axes than its input"},
           {"operation { kind: ADD constant: inf }", "constant inf is not finite"},
           {"operation { kind: EXP constant_first: true }", "constant_first is given without a constant"},
           {"operation { kind: EXP constant_shape: 2 }", "constant_shape is given without a constant"},
           {"operation { kind: EXP axis: 1 }", "axis is only for kinds SOFTMAX, L2_NORMALIZE, CUMSUM and CUMPROD"},
           {"operation { kind: EXP low: 1 }", "low and high are only for kinds CLIP and NAN_TO_NUM"},
           {"operation { kind: EXP nan: 1 }", "nan is only for kind NAN_TO_NUM"},
           {"operation { kind: NAN_TO_NUM nan: nan }", "low, high or nan is not finite"},
           {"operation { kind: NAN_TO_NUM high: inf }", "low, high or nan is not finite"},
           {"operation { kind: NAN_TO_NUM constant: 1 }", "kind NAN_TO_NUM takes no constant"},
           {"operation { kind: FULL_LIKE }", "kind FULL_LIKE takes one input, and one number as constant"},
           {"operation { kind: FULL_LIKE constant: [1, 2] constant_shape: 2 }", "kind FULL_LIKE takes one input"},
           {"operation { kind: WHERE }", "kind WHERE is of 3 operands, but it has 1 inputs and no constant"},
           {"operation { kind: WHERE constant: 1 }", "kind WHERE is of 3 operands, but it has 1 inputs and a constant"},
           {"operation { kind: WHERE constant: 1 other_constant: 2 }", "set constant_first too"},
           {"operation { kind: WHERE other_constant: 2 }", "set constant_first too"},
           {"operation { kind: WHERE constant: 1 constant_first: true other_constant: [1, 2] }",
            "other_constant has 2 numbers, other_shape holds 1"},
           {"operation { kind: WHERE constant: 1 constant_first: true other_constant: inf }",
            "other_constant inf is not finite"},
           {"operation { kind: WHERE constant: 1 constant_first: true other_shape: 2 }",
            "other_shape is given without other_constant"},
           {"operation { kind: ADD constant: 1 other_constant: 2 }", "other_constant is only for kind WHERE"},
           {"operation { kind: CLIP }", "kind CLIP needs low, high or both"},
           {"operation { kind: CLIP low: 2 high: 1 }", "low 2 is above high 1"},
           {"operation { kind: CLIP low: nan }", "low, high or nan is not finite"},
           {"operation { kind: CUMSUM axis: 4 }", "has no axis 4"},
           {"operation { kind: CUMSUM axis: [1, 2] }", "axis has 2 numbers; give one"},
           {"reduce { axis: 1 }", "kind 0 is missing or not known"},
           {"reduce { kind: SUM axis: 0 }", "has no axis 0; use 1 .. 3"},
           {"reduce { kind: SUM axis: [1, -3] }", "axis names 1 twice"},
           {"reduce { kind: ARGMAX }", "kind ARGMAX is along one axis"},
           {"slice { axes {} axes {} axes {} axes {} }", "axes has 4 entries, but its input is [4,3,2]"},
           {"slice { axes { step: 0 } }", "step is 0"},
           {"slice { axes { begin: 2 end: 2 } }", "begin, end and step leave nothing of an axis of 4"},
           {"slice { axes { begin: 4 drop: true } }", "begin 4 is not on an axis of 4"},
           {"slice { axes { begin: 1 end: 2 drop: true } }", "drop takes only begin"},
           {"subtract {}", "a subtract joins two layers"},
       }) {
    EXPECT_THAT(ErrorOf(c.layer), HasSubstr(c.error)) << c.layer;
  }
}

TEST(GraphOperations, JoinAlongAnyAxis) {
  const std::string two =
      "layers { name: 'x' input { shape: [4, 3, 2] } } layers { name: 's' slice { axes { end: 1 } } } "
      "layers { name: 'y' inputs: ['x', 's'] concatenate { axis: ";
  const auto first = Graph::Build(FromText<v1::Model>(two + "1 } }")),
             negative = Graph::Build(FromText<v1::Model>(two + "-3 } }"));
  ASSERT_TRUE(first.ok() && negative.ok()) << first.status() << negative.status();
  EXPECT_THAT(first->output().output, ElementsAre(5, 3, 2));
  EXPECT_THAT(negative->output().output, ElementsAre(5, 3, 2));
  EXPECT_THAT(Graph::Build(FromText<v1::Model>(two + "2 } }")).status().message(),
              HasSubstr("differ in more than the axis 2"));
  EXPECT_THAT(Graph::Build(FromText<v1::Model>(two + "0 } }")).status().message(),
              HasSubstr("has no axis 0; use 1 .. 3"));
}

TEST(GraphOperations, SharedLayersHaveOneSetOfVariables) {
  const Graph graph =
      Graph::Build(FromText<v1::Model>("layers { input { shape: 4 } } layers { name: 'a' dense { units: 4 } } layers { "
                                       "shares: 'a' } layers { name: 'c' shares: 'a' } layers { dense { units: 2 } }"))
          .value();
  EXPECT_EQ(graph.parameters(), 4 * 4 + 4 + 4 * 2 + 2);
  EXPECT_EQ(graph.variables().size(), 4u);
  for (const int id : {2, 3}) {
    EXPECT_EQ(graph.nodes()[id].shares, 1);
    EXPECT_EQ(graph.nodes()[id].variables, graph.nodes()[1].variables);
    EXPECT_EQ(graph.nodes()[id].layer.dense().units(), 4);
  }
  EXPECT_EQ(graph.nodes()[2].name, "dense_1");
  EXPECT_EQ(graph.nodes()[4].name, "dense");
}

TEST(GraphOperations, SeveralInputsAndOutputs) {
  const Graph graph =
      Graph::Build(
          FromText<v1::Model>(
              "layers { name: 'a' input { shape: [2, 3] } } layers { name: 'b' input { shape: 5 } } layers { name: "
              "'f' inputs: 'a' flatten {} } layers { inputs: ['f', 'b'] concatenate {} } layers { name: 'p' dense "
              "{ units: 2 } } layers { name: 'q' dense { units: 7 } } outputs: ['q', 'p']"))
          .value();
  EXPECT_THAT(graph.inputs(), ElementsAre(0, 1));
  EXPECT_THAT(graph.outputs(), ElementsAre(5, 4));
  EXPECT_EQ(graph.nodes()[1].input_offset, 6);
  EXPECT_THAT(ModelInputShape(graph), ElementsAre(11));
  EXPECT_EQ(ModelOutputSize(graph), 9);
}

}  // namespace
}  // namespace cairn
