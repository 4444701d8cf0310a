// The axes of layers' tensors as kernels take them: the examples, then up to five axes; missing axes come first, with
// size 1.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>

#include "common/model/graph.h"
#include "worker/backend/cudnn/kernels/tensors.h"

namespace cairn::cudnn {

// The place of axis `axis` (0 the first behind the examples) of a shape of `rank` axes; the examples come before it.
inline size_t AxisPlace(size_t rank, size_t axis) { return static_cast<size_t>(kernels::kAxesMax) - rank + axis; }

inline kernels::Dims DimsOf(int64_t examples, const Shape& shape) {
  kernels::Dims dims;
  dims.of[AxisPlace(shape.size(), 0) - 1] = examples;
  for (size_t i = 0; i < shape.size(); ++i) dims.of[AxisPlace(shape.size(), i)] = shape[i];
  return dims;
}

// How a dense tensor of `shape` is read along [examples, output]: an axis of size 1 is repeated; shapes are aligned at
// their last axis. shared: all examples read the same one.
inline kernels::Strides StridesAlong(const Shape& shape, const Shape& output, bool shared) {
  kernels::Strides strides;
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1) strides.of[AxisPlace(shape.size(), i)] = stride;
    stride *= shape[i];
  }
  if (!shared) strides.of[AxisPlace(output.size(), 0) - 1] = stride;
  return strides;
}

}  // namespace cairn::cudnn
