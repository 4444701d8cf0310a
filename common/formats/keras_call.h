// How a layer of a Functional model is called: `inbound_nodes`, in the dialects of Keras 2 and 3.
//
//   Keras 2   [ [ ["conv2d", 0, 0, {}], ["conv2d_1", 0, 0, {}] ] ]
//   Keras 3   [ {"args": [ [TENSOR, TENSOR] ], "kwargs": {"training": null}} ]
//             TENSOR := {"class_name": "__keras_tensor__", "config": {"keras_history": ["conv2d", 0, 0], ...}}
//
// Invariant: every argument is honoured, or refused by its name; none is skipped (what Keras writes unasked is gone
// before: keras_dialect.h).
// A free function; any thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/model/keras/keras_config.h"

namespace cairn {

// What a call of a layer gives: the layer's name for its first call, which is call 0; else a text that no name is.
std::string KerasTensorName(const std::string& layer, int call);

// A tensor that Keras 3 gives as the mask of an input.
struct KerasMask {
  size_t input = 0;    // its place in KerasCall.inputs
  std::string tensor;  // KerasTensorName
  std::string argument;
};

struct KerasCall {
  std::vector<std::string> inputs;  // KerasTensorName; MultiHeadAttention: query, value and, where it is given, key
  int keyword_inputs = 0;           // MultiHeadAttention: so many of the last are keyword arguments
  bool causal = false;              // MultiHeadAttention's use_causal_mask
  bool inference = false;           // training=False
  std::vector<KerasMask> masks;     // for keras_masks.h, or to be refused
};

bool IsKerasModel(const std::string& type);  // Sequential, Functional

// By layer: the number by which its first call in the model goes, where it is not 0: Keras 2 counts a model's own node.
using KerasFirstCalls = std::map<std::string, int>;

// call: one of `inbound_nodes`. Errors: INVALID_ARGUMENT names the layer: it is called with something else than layers'
// outputs, or with an argument that Cairn does not have.
absl::StatusOr<KerasCall> ReadKerasCall(const std::string& layer, const std::string& type, const Json& call,
                                        const KerasFirstCalls& firsts);

// Places of calls named `layers` (KerasTensorName): inputs and masks before those that take them, else as they stand.
// So Keras lists them; a file may not. Errors: INVALID_ARGUMENT names a layer whose input is none of them, or leads
// back to it, or that has another's name.
absl::StatusOr<std::vector<size_t>> OrderCalls(const std::vector<std::string>& layers,
                                               const std::vector<KerasCall>& calls);

}  // namespace cairn
