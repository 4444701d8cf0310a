// Models of LayerCases (layer_cases.h) for the shapes of a graph: operations on tensors, layers that are called twice,
// several inputs.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/unit/backend/layer_case.h"
#include "tests/unit/backend/move_cases.h"

namespace cairn {

inline std::vector<LayerCase> OperationCases() {
  const std::string features = "layers { input { shape: 5 } } layers { name: 'first' dense { units: 6 } } ";
  const std::string end = " layers { flatten {} } layers { dense { units: 4 activation: SOFTMAX } }";
  const std::string along =
      "layers { input { shape: [7, 2] } } layers { name: 'first' conv1d { filters: 4 kernel_size: 1 } } ";
  const std::string image =
      "layers { input { shape: [4, 3, 2] } } layers { name: 'first' conv2d { filters: 3 kernel_size: 1 } } ";
  const std::string positive = "layers { name: 'positive' activation { activation: SOFTPLUS } } ";
  std::vector<LayerCase> cases;
  const auto add = [&](const std::string& name, const std::string& model) { cases.push_back({name, model + end}); };
  const auto operation = [](const std::string& fields) { return "layers { operation { " + fields + " } } "; };
  const std::string other = "layers { name: 'other' inputs: 'first' conv2d { filters: 3 kernel_size: 1 } } ";
  for (const char* kind : {"ADD", "SUBTRACT", "MULTIPLY", "MAXIMUM", "MINIMUM"}) {
    add(absl::StrCat("Operation_", kind),
        image + other + "layers { inputs: ['first', 'other'] operation { kind: " + kind + " } }");
    add(absl::StrCat("Operation_", kind, "_Constant"),
        along + operation(absl::StrCat("kind: ", kind, " constant: 0.3")));
    add(absl::StrCat("Operation_", kind, "_ConstantFirst"),
        along + operation(absl::StrCat("kind: ", kind, " constant: -0.2 constant_first: true")));
  }
  add("Operation_DIVIDE",
      image + other + positive + "layers { inputs: ['first', 'positive'] operation { kind: DIVIDE } }");
  add("Operation_DIVIDE_Constants", image + operation("kind: DIVIDE constant: [0.5, -2, 3] constant_shape: 3") +
                                        operation("kind: SUBTRACT constant: [0.5, -2, 3] constant_shape: [1, 1, 3]"));
  add("Operation_DIVIDE_ConstantFirst", along + positive + operation("kind: DIVIDE constant: 2 constant_first: true"));
  add("Operation_MULTIPLY_Widens", along + "layers { name: 'r' reduce { kind: MEAN axis: 2 keepdims: true } } " +
                                       operation("kind: MULTIPLY constant: [0.5, -2, 3] constant_shape: 3"));
  add("Operation_MULTIPLY_Broadcast",
      image +
          "layers { name: 'r' inputs: 'first' reduce { kind: MAX axis: [1, 2] keepdims: true } } "
          "layers { inputs: ['first', 'r'] operation { kind: MULTIPLY } }");
  add("Operation_SUBTRACT_Broadcast",
      image +
          "layers { name: 'r' inputs: 'first' reduce { kind: MEAN axis: 3 keepdims: true } } "
          "layers { inputs: ['r', 'first'] operation { kind: SUBTRACT } }");
  add("Operation_POWER", along + positive +
                             "layers { name: 'other' inputs: 'first' conv1d { filters: 4 kernel_size: 1 } } "
                             "layers { inputs: ['positive', 'other'] operation { kind: POWER } }");
  add("Operation_POWER_Constant",
      along + operation("kind: POWER constant: 2") + positive + operation("kind: POWER constant: 1.5"));
  add("Operation_POWER_ConstantFirst", along + operation("kind: POWER constant: 2.5 constant_first: true"));
  add("Operation_MATMUL", along +
                              "layers { name: 'p' permute { dims: [2, 1] } } "
                              "layers { inputs: ['first', 'p'] operation { kind: MATMUL } }");
  add("Operation_WHERE", image + other + operation("kind: GREATER constant: 0.1") +
                             "layers { inputs: ['operation', 'first', 'other'] operation { kind: WHERE } }");
  for (const char* kind : {"EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"}) {
    add(absl::StrCat("Operation_", kind),
        along +
            "layers { name: 'other' inputs: 'first' conv1d { filters: 4 kernel_size: 1 } } layers { name: 'is' inputs: "
            "['first', 'other'] operation { kind: " +
            kind + " } } layers { inputs: ['is', 'first'] add {} }");
  }
  for (const char* kind : {"NEGATIVE", "ABSOLUTE", "SQUARE", "EXP", "EXPM1", "SIN", "COS", "TANH", "SIGMOID", "CAST"}) {
    add(absl::StrCat("Operation_", kind), along + operation(absl::StrCat("kind: ", kind)));
  }
  for (const char* kind : {"SQRT", "RSQRT", "LOG", "LOG1P", "RECIPROCAL"}) {
    add(absl::StrCat("Operation_", kind), along + positive + operation(absl::StrCat("kind: ", kind)));
  }
  for (const char* kind : {"SIGN", "FLOOR", "ROUND"}) {  // not STOP_GRADIENT: its gradient is not the derivative
    add(absl::StrCat("Operation_", kind), along + "layers { name: 's' inputs: 'first' operation { kind: " + kind +
                                              " } } layers { inputs: ['first', 's'] operation { kind: MULTIPLY } }");
  }
  add("Operation_CLIP", along + operation("kind: CLIP low: -0.3 high: 0.4"));
  add("Operation_CLIP_Below", along + operation("kind: CLIP low: 0.1"));
  for (const char* kind : {"SOFTMAX", "L2_NORMALIZE", "CUMSUM"}) {
    add(absl::StrCat("Operation_", kind), image + operation(absl::StrCat("kind: ", kind)));
    add(absl::StrCat("Operation_", kind, "_First"), image + operation(absl::StrCat("kind: ", kind, " axis: 1")));
  }
  for (const char* kind : {"MEAN", "SUM", "MAX", "MIN", "VARIANCE", "STDDEV", "L2_NORM", "PROD", "LOGSUMEXP"}) {
    add(absl::StrCat("Reduce_", kind), image + "layers { reduce { kind: " + kind + " axis: 2 } }");
    // A product of many small numbers would vanish.
    const std::string axes = kind == std::string("PROD") ? "-1" : "[-1, 1]";
    add(absl::StrCat("Reduce_", kind, "_Last"),
        image + "layers { reduce { kind: " + kind + " axis: " + axes + " keepdims: true } }");
  }
  add("Reduce_All", features + "layers { reduce { kind: MEAN } }");
  add("Reduce_ARGMAX", image +
                           "layers { name: 'most' inputs: 'first' reduce { kind: ARGMAX axis: 3 keepdims: true } } "
                           "layers { inputs: ['most', 'first'] operation { kind: MULTIPLY } }");
  add("Slice", image + "layers { slice { axes { begin: 1 } axes { step: 2 } axes { step: -1 } } }");
  add("Slice_Drop", image + "layers { slice { axes { begin: -1 drop: true } axes { begin: 2 end: 0 step: -1 } } }");
  add("Slice_Shared", along +
                          "layers { name: 'a' inputs: 'first' slice { axes { end: 4 } } } layers { name: 'b' inputs: "
                          "'first' slice { axes { begin: 2 end: 6 } } } layers { inputs: ['a', 'b'] subtract {} }");
  add("Slice_Feature", features + "layers { slice { axes { begin: 1 end: -1 } } }");
  add("Subtract", image + other + "layers { inputs: ['first', 'other'] subtract {} }");
  add("Subtract_Row", image +
                          "layers { name: 'r' inputs: 'first' global_average_pooling2d {} } "
                          "layers { inputs: ['first', 'r'] subtract {} }");
  add("Minimum", image + other + "layers { inputs: ['first', 'other', 'first'] minimum {} }");
  add("Concatenate_First", image + other + "layers { inputs: ['first', 'other'] concatenate { axis: 1 } }");
  add("Concatenate_Second", image +
                                "layers { name: 's' inputs: 'first' slice { axes {} axes { end: 2 } } } "
                                "layers { inputs: ['first', 's'] concatenate { axis: -2 } }");
  add("Concatenate_Steps", along +
                               "layers { name: 's' inputs: 'first' slice { axes { end: 2 } } } "
                               "layers { inputs: ['s', 'first', 's'] concatenate { axis: 1 } }");
  return cases;
}

inline std::vector<LayerCase> SharedCases() {
  const std::string end = " layers { flatten {} } layers { dense { units: 4 activation: SOFTMAX } }";
  return {
      {"SharedDense",
       "layers { input { shape: 5 } } layers { name: 'd' dense { units: 5 activation: TANH } } layers { "
       "shares: 'd' } layers { shares: 'd' }" +
           end},
      {"SharedConv",
       "layers { name: 'in' input { shape: [5, 4, 3] } } layers { name: 'c' conv2d { filters: 3 kernel_size: "
       "3 padding: SAME activation: RELU } } layers { name: 'p' max_pooling2d { pool_size: 2 strides: 1 } } "
       "layers { name: 'c2' inputs: 'p' shares: 'c' } layers { name: 's' global_average_pooling2d {} } "
       "layers { name: 'g' inputs: 'c' global_average_pooling2d {} } layers { inputs: ['g', 's'] add {} }" +
           end},
      {"SharedSeparable",
       "layers { input { shape: [5, 4, 2] } } layers { name: 'first' conv2d { filters: 3 kernel_size: 1 "
       "} } layers { name: 's' separable_conv2d { filters: 3 kernel_size: 3 padding: SAME } } layers { "
       "shares: 's' }" +
           end},
      {"SharedNormalization",
       "layers { input { shape: [5, 4] } } layers { name: 'first' conv1d { filters: 4 kernel_size: 1 "
       "} } layers { name: 'n' layer_normalization {} } layers { name: 'm' inputs: 'first' conv1d { "
       "filters: 4 kernel_size: 1 } } layers { shares: 'n' } layers { inputs: ['n', "
       "'layer_normalization'] add {} }" +
           end},
      {"SharedEmbedding",
       "layers { name: 'ids' input { shape: 6 } } layers { name: 'e' embedding { input_dim: 5 output_dim: "
       "3 } } layers { name: 'again' inputs: 'ids' shares: 'e' } layers { inputs: ['e', 'again'] "
       "multiply {} }" +
           end},
      {"SharedFrozen",
       "layers { input { shape: 5 } } layers { name: 'first' dense { units: 4 } } layers { name: 'd' "
       "trainable: false dense { units: 4 } } layers { shares: 'd' }" +
           end},
      {"SharedDropout",
       "layers { input { shape: 5 } } layers { name: 'first' dense { units: 4 } } layers { name: 'd' "
       "dropout { rate: 0.4 } } layers { name: 'again' inputs: 'first' shares: 'd' } layers { inputs: "
       "['d', 'again'] add {} }" +
           end},
      {"SharedAttention",
       "layers { input { shape: [4, 3] } } layers { name: 'x' conv1d { filters: 3 kernel_size: 1 } } "
       "layers { name: 'a' inputs: ['x', 'x'] multi_head_attention { num_heads: 2 key_dim: 2 } } layers "
       "{ inputs: ['a', 'x'] shares: 'a' }" +
           end},
  };
}

inline std::vector<LayerCase> InputCases() {
  const std::string end = " layers { flatten {} } layers { dense { units: 4 activation: SOFTMAX } }";
  return {
      {"TwoInputs",
       "layers { name: 'a' input { shape: 5 } } layers { name: 'b' input { shape: 3 } } layers { name: 'of_a' "
       "inputs: 'a' dense { units: 4 activation: TANH } } layers { inputs: ['b', 'of_a'] concatenate {} } "
       "layers { dense { units: 5 activation: TANH } }" +
           end},
      {"InputsOfShapes",
       "layers { name: 'a' input { shape: [4, 5, 2] } } layers { name: 'b' input { shape: [4, 5, 2] } } "
       "layers { name: 'scaled' inputs: 'b' rescaling { scale: 0.5 offset: 0.1 } } layers { name: 'c' "
       "inputs: 'a' conv2d { filters: 3 kernel_size: 3 } } layers { inputs: 'scaled' shares: 'c' } layers "
       "{ inputs: ['c', 'conv2d'] subtract {} } layers { name: 'last' input { shape: [2, 3, 3] } } layers "
       "{ inputs: ['subtract', 'last'] multiply {} }" +
           end},
  };
}

inline std::vector<LayerCase> GraphCases() {
  std::vector<LayerCase> cases = OperationCases();
  for (const LayerCase& c : SharedCases()) cases.push_back(c);
  for (const LayerCase& c : InputCases()) cases.push_back(c);
  for (const LayerCase& c : MoveCases()) cases.push_back(c);
  for (const LayerCase& c : FurtherOperationCases()) cases.push_back(c);
  return cases;
}

}  // namespace cairn
