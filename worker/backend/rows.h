// Layers that work on rows: the numbers along the last axis, or along the last axes.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>

#include "common/model/graph.h"

namespace cairn {

inline constexpr double kUnitLengthMin = 1e-6;  // Keras' UnitNormalization: sqrt(1e-12)

// How many numbers a row of the layer has: its `axis` names the last axes of `shape`.
template <typename Layer>
int64_t RowNumbers(const Layer& layer, const Shape& shape) {
  int64_t numbers = 1;
  for (const int32_t axis : layer.axis()) numbers *= shape[static_cast<size_t>(axis) - 1];
  return numbers;
}

}  // namespace cairn
