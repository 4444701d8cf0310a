// Reads an activation that a Keras model applies as an operation on tensors: keras.ops.leaky_relu(x).
//
// A free function; any thread.
#pragma once

#include "cairn/v1/model.pb.h"
#include "common/base/status.h"
#include "common/formats/keras_arguments.h"

namespace cairn {

// Whether ReadKerasActivation knows the function.
bool IsKerasActivation(const std::string& function);

// Returns whether the operation is an activation; if so, sets `layer`. Errors: INVALID_ARGUMENT names the layer and the
// option.
absl::StatusOr<bool> ReadKerasActivation(KerasArguments& arguments, v1::Layer* layer);

}  // namespace cairn
