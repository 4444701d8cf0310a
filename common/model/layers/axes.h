// Axes of a layer as Keras counts them: from 1, after the batch axis, or negative from the end.
//
// Pure functions. Errors are INVALID_ARGUMENT; the caller adds the layer's name.
#pragma once

#include "common/base/status.h"
#include "common/model/graph.h"
#include "common/model/layers/fields.h"

namespace cairn {
class KerasConfig;
}

namespace cairn::layers {

// Normalizes the axes to those of `input`, counted from 1, sorted and unique; none given: the last axis. Errors: an
// axis that the input does not have, or one that is named twice.
absl::Status ResolveAxes(const char* field, const Shape& input, Numbers* axes);

// The same, but the axes must be the last ones of `input`.
absl::Status NeedLastAxes(const char* field, const Shape& input, Numbers* axes);

// One axis of `input`, counted from 1. Errors: it is not given, or the input does not have it.
absl::StatusOr<int32_t> ReadAxis(const Shape& input, bool given, int32_t axis);
// The place of a new axis of size 1 or more in a tensor that is made of `input`, counted from 1; negative from the end
// of that tensor. Errors: it is not given, there is no such place, or the tensor has too many axes.
absl::StatusOr<int32_t> ReadNewAxis(const Shape& input, bool given, int32_t axis);

// `input` with size 1 along all other axes. axes: must be resolved.
Shape KeptShape(const Shape& input, const Numbers& axes);
// The sizes of these axes alone.
Shape SizesOf(const Shape& input, const Numbers& axes);

// Reads Keras' `axis`: one number or a list; the batch axis is rejected. Leaves the list empty if none is given.
void ReadAxes(KerasConfig& config, Numbers* axes);

}  // namespace cairn::layers
