// What keras_roundtrip_test.cc sets the fields of layers to that hold a message.
#pragma once

#include <memory>
#include <vector>

#include "tests/unit/model/model_text.h"

namespace cairn {

inline constexpr const char* kRegularizerTexts[] = {"l1: 0.3", "l2: 0.0001", "l1: 0.1 l2: 0.01",
                                                    "orthogonal_factor: 0.3",
                                                    "orthogonal_factor: 0.01 orthogonal_columns: true"};

inline constexpr const char* kConstraintTexts[] = {
    "kind: NON_NEG",   "kind: MAX_NORM",     "kind: MAX_NORM max_value: 3 axis: -1",
    "kind: UNIT_NORM", "kind: MIN_MAX_NORM", "kind: MIN_MAX_NORM min_value: 0.25 max_value: 0.5 rate: 0.3"};

inline std::vector<std::unique_ptr<google::protobuf::Message>> Initializers() {
  std::vector<std::unique_ptr<google::protobuf::Message>> all;
  for (const char* text : {"kind: ZEROS",
                           "kind: ONES",
                           "kind: CONSTANT value: 0.25",
                           "kind: GLOROT_UNIFORM",
                           "kind: GLOROT_NORMAL",
                           "kind: HE_UNIFORM",
                           "kind: HE_NORMAL",
                           "kind: LECUN_UNIFORM",
                           "kind: LECUN_NORMAL",
                           "kind: RANDOM_UNIFORM",
                           "kind: RANDOM_NORMAL",
                           "kind: TRUNCATED_NORMAL",
                           "kind: VARIANCE_SCALING",
                           "kind: RANDOM_UNIFORM minval: -0.3",
                           "kind: RANDOM_UNIFORM maxval: 0.3",
                           "kind: RANDOM_NORMAL mean: 0.1",
                           "kind: RANDOM_NORMAL stddev: 0.3",
                           "kind: TRUNCATED_NORMAL mean: 0.1",
                           "kind: TRUNCATED_NORMAL stddev: 0",
                           "kind: VARIANCE_SCALING scale: 0.3",
                           "kind: VARIANCE_SCALING mode: FAN_OUT",
                           "kind: VARIANCE_SCALING mode: FAN_AVG",
                           "kind: VARIANCE_SCALING distribution: DISTRIBUTION_UNIFORM",
                           "kind: VARIANCE_SCALING distribution: DISTRIBUTION_UNTRUNCATED_NORMAL",
                           "kind: ORTHOGONAL",
                           "kind: ORTHOGONAL gain: 0.3",
                           "kind: IDENTITY",
                           "kind: IDENTITY gain: 0.3"}) {
    all.push_back(std::make_unique<v1::Initializer>(FromText<v1::Initializer>(text)));
  }
  return all;
}

}  // namespace cairn
