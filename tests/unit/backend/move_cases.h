// Models of LayerCases (layer_cases.h) about operations that move numbers or join tensors, and the less common kinds of
// Operation and Reduce.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/unit/backend/layer_case.h"

namespace cairn {

inline constexpr char kMoveImage[] =
    "layers { input { shape: [4, 3, 2] } } layers { name: 'first' conv2d { filters: 3 kernel_size: 1 } } ";
inline constexpr char kMoveRows[] =
    "layers { input { shape: [7, 2] } } layers { name: 'first' conv1d { filters: 4 kernel_size: 1 } } ";
inline constexpr char kMoveEnd[] = " layers { flatten {} } layers { dense { units: 4 activation: SOFTMAX } }";

inline std::vector<LayerCase> MoveCases() {
  std::vector<LayerCase> cases;
  const auto add = [&](const std::string& name, const std::string& head, const std::string& layer) {
    cases.push_back({name, absl::StrCat(head, layer, kMoveEnd)});
  };
  const std::string rows = kMoveRows, image = kMoveImage;
  const std::string other = "layers { name: 'other' inputs: 'first' conv1d { filters: 4 kernel_size: 1 } } ";
  for (const char* axis : {"1", "2", "-1"}) {
    add(absl::StrCat("Stack_", axis[0] == '-' ? "Last" : axis), rows + other,
        absl::StrCat("layers { inputs: ['first', 'other', 'first'] stack { axis: ", axis, " } }"));
  }
  add("Pad", image, "layers { pad { before: [1, 0, 2] after: [0, 3, 1] } }");
  add("Pad_Value", rows, "layers { pad { before: [0, 1] after: [2, 0] constant_value: -0.5 } }");
  add("Pad_Reflect", image, "layers { pad { mode: REFLECT before: [3, 1, 0] after: [2, 2, 2] } }");
  add("Pad_Symmetric", image, "layers { pad { mode: SYMMETRIC before: [4, 1, 0] after: [1, 3, 2] } }");
  add("Pad_BeforePooling",
      "layers { input { shape: [4, 4, 2] } } layers { name: 'first' conv2d { filters: 2 kernel_size: 1 } } ",
      "layers { pad { before: [1, 1, 0] after: [1, 1, 0] } } layers { max_pooling2d { pool_size: 3 } }");
  add("Tile", image, "layers { tile { repeats: [2, 1, 3] } }");
  add("Tile_Once", rows, "layers { tile { repeats: [1, 1] } }");
  add("Take", rows, "layers { take { axis: 1 indices: [6, -1, 0, 0, 3] } }");
  add("Take_Shape", rows, "layers { take { axis: 2 indices: [3, 0, 1, 1, 2, 0] indices_shape: [3, 2] } }");
  add("Take_One", image, "layers { take { axis: -1 indices: [1] } }");
  add("OneHot", rows,
      "layers { name: 'most' reduce { kind: ARGMAX axis: 2 } } layers { name: 'h' one_hot { num_classes: 4 } } layers "
      "{ inputs: ['h', 'first'] multiply {} }");
  add("OneHot_First", rows,
      "layers { name: 'most' reduce { kind: ARGMAX axis: 2 } } layers { inputs: 'most' operation { kind: SUBTRACT "
      "constant: 1 } } layers { name: 'h' one_hot { num_classes: 2 axis: 1 } } layers { name: 'p' inputs: 'first' "
      "permute { dims: [2, 1] } } layers { name: 's' slice { axes { end: 2 } } } layers { inputs: ['h', 's'] add {} }");
  const std::string three =
      "layers { input { shape: [4, 3, 2] } } layers { name: 'first' conv2d { filters: 5 kernel_size: 1 } } ";
  add("TopK", three, "layers { top_k { k: 3 } }");
  add("TopK_One", rows, "layers { top_k { k: 1 } }");
  add("TopK_Sorts", rows, "layers { top_k { k: 4 } }");
  add("TopK_Indices", three,
      "layers { name: 'places' top_k { k: 2 indices: true } } layers { name: 'numbers' inputs: 'first' top_k { k: 2 } "
      "} layers { inputs: ['numbers', 'places'] multiply {} }");
  add("TopK_Equal", rows,  // of equal numbers the first one gets the gradient
      "layers { name: 'r' activation { activation: RELU } } layers { name: 'k' top_k { k: 3 } } layers { name: "
      "'places' inputs: 'r' top_k { k: 3 indices: true } } layers { inputs: ['k', 'places'] add {} }");
  add("Einsum_Two", rows + other, "layers { inputs: ['first', 'other'] einsum { equation: 'bij,bkj->bik' } }");
  add("Einsum_Shared", image + "layers { name: 'other' inputs: 'first' conv2d { filters: 3 kernel_size: 1 } } ",
      "layers { inputs: ['first', 'other'] einsum { equation: 'bhwc, bhvc -> bhwv' } }");
  add("Einsum_Outer",
      "layers { input { shape: 3 } } layers { name: 'first' dense { units: 2 } } "
      "layers { name: 'other' inputs: 'first' dense { units: 3 } } ",
      "layers { inputs: ['first', 'other'] einsum { equation: 'bi,bj->bji' } }");
  add("Einsum_Number",
      "layers { input { shape: 3 } } layers { name: 'first' dense { units: 2 } } "
      "layers { name: 'other' inputs: 'first' dense { units: 2 } } ",
      "layers { inputs: ['first', 'other'] einsum { equation: 'bi,bi->b' } }");
  return cases;
}

inline std::vector<LayerCase> FurtherOperationCases() {
  std::vector<LayerCase> cases;
  const auto add = [&](const std::string& name, const std::string& layers) {
    cases.push_back({name, absl::StrCat(kMoveRows, layers, kMoveEnd)});
  };
  const auto operation = [](const std::string& fields) { return "layers { operation { " + fields + " } } "; };
  const std::string between = "layers { activation { activation: TANH } } layers { rescaling { scale: 0.7 } } ";
  const std::string positive = "layers { name: 'positive' activation { activation: SOFTPLUS } } ";
  for (const char* kind : {"TAN", "ARCSIN", "ARCCOS", "ARCTAN", "SINH", "COSH", "ARCSINH", "ARCTANH", "ERF"}) {
    add(absl::StrCat("Operation_", kind), between + operation(absl::StrCat("kind: ", kind)));
  }
  for (const char* kind : {"LOG2", "LOG10"}) {
    add(absl::StrCat("Operation_", kind), positive + operation(absl::StrCat("kind: ", kind)));
  }
  add("Operation_ARCCOSH", positive + "layers { rescaling { scale: 1 offset: 1.5 } } " + operation("kind: ARCCOSH"));
  for (const char* kind : {"CEIL", "TRUNC", "LOGICAL_NOT", "IS_NAN", "IS_INF", "IS_FINITE"}) {  // gradients of 0
    add(absl::StrCat("Operation_", kind), absl::StrCat("layers { name: 's' inputs: 'first' operation { kind: ", kind,
                                                       " } } layers { inputs: ['first', 's'] subtract {} }"));
  }
  const std::string halves = absl::StrCat(
      "layers { name: 'a' inputs: 'first' operation { kind: GREATER constant: 0 } } layers { name: 'b' inputs: 'first' "
      "operation { kind: LESS constant: 0.3 } } layers { name: 'is' inputs: ['a', 'b'] operation { kind: ");
  for (const char* kind : {"LOGICAL_AND", "LOGICAL_OR", "LOGICAL_XOR"}) {
    add(absl::StrCat("Operation_", kind), absl::StrCat(halves, kind, " } } layers { inputs: ['is', 'first'] add {} }"));
  }
  const std::string other = "layers { name: 'other' inputs: 'first' conv1d { filters: 4 kernel_size: 1 } } ";
  add("Operation_SQUARED_DIFFERENCE",
      other + "layers { inputs: ['first', 'other'] operation { kind: SQUARED_DIFFERENCE } }");
  add("Operation_ARCTAN2", other + positive + "layers { inputs: ['first', 'positive'] operation { kind: ARCTAN2 } }");
  const std::string above = "layers { name: 'is' inputs: 'first' operation { kind: GREATER constant: 0.1 } } ";
  add("Operation_WHERE_Number", above + "layers { inputs: ['is', 'first'] operation { kind: WHERE constant: -0.25 } }");
  add("Operation_WHERE_NumberFirst",
      above + "layers { inputs: ['is', 'first'] operation { kind: WHERE constant: 0.5 constant_first: true } }");
  add("Operation_WHERE_Numbers",
      above +
          "layers { name: 'w' inputs: 'is' operation { kind: WHERE constant: 0.5 constant_first: true "
          "other_constant: -2 } } layers { inputs: ['w', 'first'] multiply {} }");
  add("Operation_WHERE_Lists",
      above +
          "layers { name: 'w' inputs: 'is' operation { kind: WHERE constant: [1, 2, 3, 4] constant_shape: 4 "
          "constant_first: true other_constant: [1, 2, 3, 4, 5, 6, 7] other_shape: [7, 1] } } layers { inputs: "
          "['w', 'first'] multiply {} }");
  add("Operation_WHERE_Widens",
      "layers { name: 'm' reduce { kind: MEAN axis: 1 keepdims: true } } layers { name: 'is' "
      "operation { kind: LESS constant: 0 } } layers { inputs: ['is', 'm'] operation { kind: "
      "WHERE constant: [1, 2, 3] constant_shape: [3, 1] } }");
  add("Operation_NAN_TO_NUM",  // the logarithm of a negative number is none
      "layers { name: 'log' inputs: 'first' operation { kind: LOG } } " + operation("kind: NAN_TO_NUM nan: 0.25"));
  add("Operation_FULL_LIKE",
      "layers { name: 's' inputs: 'first' operation { kind: FULL_LIKE constant: 0.5 } } layers { inputs: ['first', "
      "'s'] subtract {} }");
  add("Operation_MOD", operation("kind: MOD constant: 0.75"));
  add("Operation_MOD_Negative", operation("kind: MOD constant: -1.25"));
  add("Operation_FLOOR_DIVIDE",
      "layers { name: 's' inputs: 'first' operation { kind: FLOOR_DIVIDE constant: 0.5 } } layers { inputs: ['first', "
      "'s'] subtract {} }");
  add("Operation_CUMPROD", operation("kind: CUMPROD axis: 2"));
  add("Operation_CUMPROD_First",
      "layers { rescaling { scale: 1.5 offset: 0.5 } } " + operation("kind: CUMPROD axis: 1"));
  add("Reduce_L1_NORM", "layers { reduce { kind: L1_NORM axis: 2 } }");
  add("Reduce_L1_NORM_Kept", "layers { reduce { kind: L1_NORM axis: 1 keepdims: true } }");
  add("Reduce_ARGMIN",
      "layers { name: 'least' inputs: 'first' reduce { kind: ARGMIN axis: 2 keepdims: true } } "
      "layers { inputs: ['least', 'first'] operation { kind: MULTIPLY } }");
  const std::string some = "layers { name: 'r' inputs: 'first' activation { activation: RELU } } ";
  for (const auto& [kind, before] : {std::pair("ANY", "RELU"), std::pair("ALL", "SOFTPLUS")}) {
    add(absl::StrCat("Reduce_", kind),
        absl::StrCat("layers { name: 'r' inputs: 'first' activation { activation: ", before,
                     " } } layers { name: 'is' reduce { kind: ", kind,
                     " axis: 2 keepdims: true } } layers { inputs: ['is', 'first'] operation { kind: MULTIPLY } }"));
  }
  add("Reduce_COUNT_NONZERO",
      some +
          "layers { reduce { kind: COUNT_NONZERO axis: 1 } } layers { name: 'n' reshape { "
          "target_shape: [1, 4] } } layers { inputs: ['n', 'first'] operation { kind: MULTIPLY } }");
  return cases;
}

}  // namespace cairn
