// How a layer of a Functional model is called: `inbound_nodes`, in the dialects of Keras 2 and 3.
//
//   Keras 2   [ [ ["conv2d", 0, 0, {}], ["conv2d_1", 0, 0, {}] ] ]
//   Keras 3   [ {"args": [ [TENSOR, TENSOR] ], "kwargs": {"training": null}} ]
//             TENSOR := {"class_name": "__keras_tensor__", "config": {"keras_history": ["conv2d", 0, 0], ...}}
//
// A free function; any thread.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/formats/keras_config.h"

namespace cairn {

struct KerasCall {
  std::vector<std::string> inputs;  // names of layers; MultiHeadAttention: query, value and, where it is given, key
  bool causal = false;              // MultiHeadAttention's use_causal_mask
};

// Errors: INVALID_ARGUMENT names the layer: it is called more than once, or with something else than layers' outputs.
absl::StatusOr<KerasCall> ReadKerasCall(const std::string& layer, const std::string& type, const Json& inbound_nodes);

}  // namespace cairn
