// The calls of a layer in a Functional model: `inbound_nodes`, in the dialects of Keras 2 and 3.
//
//   Keras 2   [ [ ["conv2d", 0, 0, {}], ["conv2d_1", 0, 0, {}] ] ]
//   Keras 3   [ {"args": [ [TENSOR, TENSOR] ], "kwargs": {"training": null}} ]
//             TENSOR := {"class_name": "__keras_tensor__", "config": {"keras_history": ["conv2d", 0, 0], ...}}
//
// Invariant: every argument is honoured, or refused by name; none is ignored (keras_dialect.h has already removed those
// that Keras writes by default).
// A free function; any thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/model/keras/keras_config.h"

namespace cairn {

// The name of a call's output: the layer's name for the first output of its first call, both 0; else a text that cannot
// be a name.
std::string KerasTensorName(const std::string& layer, int call, int output = 0);
std::string KerasCallOf(absl::string_view tensor);  // KerasTensorName of the call's first output
int KerasOutputOf(absl::string_view tensor);
// As an error shows it: "dense", "dense (call 1)", "split (output 2)".
std::string ShownTensor(absl::string_view tensor);

// The output of a tensor's history, ["split", 0, 2]; -1: it is not a whole number in 0 .. kKerasOutputsMax.
int KerasOutputNumber(const Json& history);

// A tensor that Keras 3 passes as the mask of an input.
struct KerasMask {
  size_t input = 0;    // index in KerasCall.inputs
  std::string tensor;  // KerasTensorName
  std::string argument;
};

struct KerasCall {
  std::vector<std::string> inputs;  // KerasTensorName; MultiHeadAttention: query, value and, if given, key
  int keyword_inputs = 0;           // MultiHeadAttention: how many of the last inputs are keyword arguments
  bool causal = false;              // MultiHeadAttention's use_causal_mask
  bool inference = false;           // training=False
  std::vector<KerasMask> masks;     // for keras_masks.h, or to be rejected
  std::vector<int> outputs = {0};   // those that the model takes
  bool takes_states = false;        // whether another call of the layer, or this one, takes a further output
};

bool IsKerasModel(const std::string& type);  // Sequential, Functional

// By layer: the number of its first call in the model, if it is not 0: Keras 2 counts a model's own node.
using KerasFirstCalls = std::map<std::string, int>;

// call: one of `inbound_nodes`. Errors: INVALID_ARGUMENT names the layer: it is called with something other than
// outputs of layers, or with an argument that Cairn does not support.
absl::StatusOr<KerasCall> ReadKerasCall(const std::string& layer, const std::string& type, const Json& call,
                                        const KerasFirstCalls& firsts);

// The order of calls named `layers` (KerasTensorName): inputs and masks before their users, otherwise as listed. Keras
// lists them so, but a file may not. Errors: INVALID_ARGUMENT names a layer whose input is not among them, or depends
// on the layer itself, or whose name is used twice.
absl::StatusOr<std::vector<size_t>> OrderCalls(const std::vector<std::string>& layers,
                                               const std::vector<KerasCall>& calls);

}  // namespace cairn
