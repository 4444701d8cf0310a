// What job_numbers_test.cc tries of the operations that move numbers: a job with each of them, and the numbers that
// they take.
#pragma once

#include <set>
#include <string>

namespace cairn {

inline constexpr char kMoveJob[] = R"(
  model {
    layers { name: "in" input { shape: 4 } }
    layers { name: "h" one_hot { num_classes: 5 axis: 1 } inputs: "in" }
    layers { name: "n" operation { kind: NAN_TO_NUM nan: 0.5 low: -1 high: 2 } inputs: "in" }
    layers { name: "w" operation { kind: WHERE constant: 1 constant_first: true other_constant: [1, 2, 3, 4]
                                   other_shape: 4 } inputs: "in" }
    layers { name: "s" stack { axis: 1 } inputs: ["n", "w"] }
    layers { pad { before: [1, 2] after: [2, 1] constant_value: 0.5 } }
    layers { tile { repeats: [2, 1] } }
    layers { take { axis: 1 indices: [3, 1] indices_shape: [2, 1] } }
    layers { top_k { k: 2 } }
    layers { flatten {} }
    layers { spectral_normalization { layer { dense { units: 3 } } power_iterations: 2 } }
    layers { dense { units: 4 activation: SOFTMAX } }
    layers { name: "f" flatten {} inputs: "h" }
    layers { dense { units: 4 activation: SOFTMAX } }
    layers { average {} inputs: ["dense", "dense_1"] }
  }
  data { path: "/data" }
  loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
  optimizer { sgd {} }
  batch_size: 8 )";

// A number like any other, or the default.
inline const std::set<std::string> kMoveZeros = {"Pad.before",   "Pad.after",     "Pad.constant_value",
                                                 "Take.indices", "Operation.nan", "Operation.other_constant"};
inline const std::set<std::string> kMoveNegatives = {
    "Pad.constant_value",      "Take.indices", "Take.axis", "Stack.axis", "OneHot.axis", "Operation.nan",
    "Operation.other_constant"};
inline const std::set<std::string> kMoveNegativesStandForAnother = {"Take.axis", "Stack.axis", "OneHot.axis"};

}  // namespace cairn
