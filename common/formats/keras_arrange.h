// Operations of Keras' models that rearrange the numbers of tensors, or join tensors: reshape, transpose, split, stack,
// pad, tile, take, one_hot, einsum and others.
//
// Free functions; any thread. Errors: INVALID_ARGUMENT names the layer, the operation and what is not supported.
#pragma once

#include "absl/types/span.h"
#include "common/base/status.h"
#include "common/formats/keras_arguments.h"
#include "common/model/graph.h"

namespace cairn {

// Whether ReadKerasArrangement knows the function.
bool IsKerasArrangement(const std::string& function);

// Returns whether the operation is such a one, and then sets the layer's kind. shapes: of the tensors, without the
// batch. output: which one, of an operation with several (IsKerasSplit).
absl::StatusOr<bool> ReadKerasArrangement(KerasArguments& arguments, absl::Span<const Shape> shapes, int output,
                                          v1::Layer* layer);

// target: without the batch; of one number for each example: [].
inline void KerasReshapeTo(const Shape& target, v1::Layer* layer) {
  for (const int64_t dim : target) layer->mutable_reshape()->add_target_shape(static_cast<int32_t>(dim));
  if (target.empty()) layer->mutable_reshape()->add_target_shape(1);
}

}  // namespace cairn
