// Tensors of one number an example and no axis, as keras.Input(shape=()) gives. Cairn has an axis of one for them;
// Keras' layers that add axes behind those that are there give one axis less than Cairn's.
//
// Free functions; any thread.
#pragma once

#include "cairn/v1/model.pb.h"
#include "common/base/status.h"
#include "common/model/graph.h"

namespace cairn {

// What a layer gives that takes such tensors.
enum class KerasScalarUse {
  kScalar,  // such a tensor again
  kDrops,   // what Cairn's layer gives, without its first axis, which is 1
  kShape,   // what Cairn's layer gives
};

// layer: it is changed where Cairn says in another way what Keras means. all: each of its inputs is such a tensor.
// Errors: INVALID_ARGUMENT: Keras does not take it, or mixes the examples of a batch; the text does not name the layer.
absl::StatusOr<KerasScalarUse> UseOfScalars(v1::Layer* layer, bool all);

}  // namespace cairn
