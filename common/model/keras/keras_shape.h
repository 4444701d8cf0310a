// The shape of a model's input, as Keras writes it.
//
// A free function; any thread.
#pragma once

#include "cairn/v1/model.pb.h"
#include "common/base/status.h"
#include "common/model/keras/keras_config.h"

namespace cairn {

// Reads `batch_shape` or `batch_input_shape` ([null, 28, 28, 1]) and returns the shape without the batch. Errors do not
// name the layer.
absl::StatusOr<v1::InputLayer> ReadBatchShape(const Json& batch_shape);

}  // namespace cairn
