// Operations on tensors in Keras' files: the class that Keras 3 records, and the TensorFlow function that Keras 2
// records.
//
// Pure functions; any thread.
#pragma once

#include "absl/strings/string_view.h"
#include "cairn/v1/tensor_layers.pb.h"
#include "common/model/graph.h"

namespace cairn {

struct KerasOperation {
  v1::Operation::Kind kind;
  const char* module;  // "keras.src.ops.numpy"
  const char* name;    // "TrueDivide"
  // TensorFlow functions without "tf.", separated by one space: "math.truediv __operators__.truediv".
  const char* functions;
};

struct KerasReduction {
  v1::Reduce::Kind kind;
  const char *module, *name, *functions;
};

// All return null if there is none.
const KerasOperation* KerasOperationOf(v1::Operation::Kind kind);
const KerasReduction* KerasReductionOf(v1::Reduce::Kind kind);
const KerasOperation* FindKerasOperation(absl::string_view name);  // by the name of Keras 3's class
const KerasReduction* FindKerasReduction(absl::string_view name);
const KerasOperation* FindTfOperation(absl::string_view function);
const KerasReduction* FindTfReduction(absl::string_view function);

// The module of the class that the node is written as if it is an operation; null if it is a layer.
const char* KerasOperationModule(const Node& node);

}  // namespace cairn
