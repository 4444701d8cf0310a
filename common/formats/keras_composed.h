// Operations of Keras' models that become several layers, one after the other, or that give several outputs which are
// no parts of the input: top_k, average, median, sort, argsort, multi_hot, depth_to_space, space_to_depth; and hstack.
//
// Free functions; any thread. Errors: INVALID_ARGUMENT names the layer, the operation and what is not supported.
#pragma once

#include <string>

#include "absl/types/span.h"
#include "common/base/status.h"
#include "common/formats/keras_arguments.h"
#include "common/model/graph.h"

namespace cairn {

// Whether ReadKerasComposed knows the function.
bool IsKerasComposed(const std::string& function);
// Whether it is top_k, which gives the numbers and their places.
bool IsKerasTopK(const std::string& function);

// Returns whether the operation is such a one, and then sets the layers' kinds. shapes: of the tensors, without the
// batch. output: of top_k 0, the numbers, or 1, their places.
absl::StatusOr<bool> ReadKerasComposed(KerasArguments& arguments, absl::Span<const Shape> shapes, int output,
                                       KerasOperationLayers* made);

}  // namespace cairn
