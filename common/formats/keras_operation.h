// Converts an operation on tensors in Keras' description of a model to Cairn's layer: x + y, x[..., ::-1], the mean
// over an axis.
//
//   Keras 3   a class of keras.src.ops, called with tensors and constants
//   Keras 2   TFOpLambda and SlicingOpLambda: config.function is one of TensorFlow, called with keyword arguments;
//             ["_CONSTANT_VALUE", -1, 2.0, {...}] is a constant in place of a tensor
//
// Free functions; any thread. Errors: INVALID_ARGUMENT names the layer, the operation and what is not supported.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/base/status.h"
#include "common/formats/keras_call.h"
#include "common/model/graph.h"
#include "common/model/keras/keras_config.h"

namespace cairn {

struct KerasOperationEntry {
  std::string name, type, module;
  const Json* config = nullptr;
  const Json* call = nullptr;  // one of inbound_nodes
};

// What an operation becomes: a layer, and perhaps others, each of which takes what the one before it gives.
struct KerasOperationLayers {
  v1::Layer layer;
  std::vector<v1::Layer> then;
};

bool IsKerasOperation(const std::string& type, const std::string& module);

// The tensors that the operation is called with, in order.
absl::StatusOr<KerasCall> ReadKerasOperationCall(const KerasOperationEntry& entry, const KerasFirstCalls& firsts);

// OK: Cairn has the operation; what it is called with may still be refused.
absl::Status CheckIsKerasOperation(const KerasOperationEntry& entry);

// Whether the operation gives a list of tensors, each of which becomes a layer: Split, Unstack, TopK.
bool IsKerasSplit(const std::string& type, const Json& config);

// The layer, with the entry's name and no inputs, and those behind it. shapes: of the tensors, without the batch.
// output: of an IsKerasSplit the number of its output.
absl::StatusOr<KerasOperationLayers> ReadKerasOperation(const KerasOperationEntry& entry,
                                                        absl::Span<const Shape> shapes, int output);

}  // namespace cairn
