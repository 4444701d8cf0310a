// The positions of one axis that a Slice selects, by Python's rules for x[begin:end:step].
//
// A pure function; any thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cairn/v1/tensor_layers.pb.h"

namespace cairn {

struct SliceRange {
  int64_t begin = 0, step = 1, count = 0;  // count 0: nothing is selected, or there is no such position
};

// size: that of the axis. REQUIRED: a step that is set is not 0.
inline SliceRange RangeOf(const v1::Slice::Axis& axis, int64_t size) {
  const auto from_end = [size](int64_t at) { return at < 0 ? at + size : at; };
  if (axis.drop()) {
    const int64_t at = from_end(axis.begin());
    return {at, 1, at >= 0 && at < size ? 1 : 0};
  }
  const int64_t step = axis.has_step() ? axis.step() : 1;
  const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;  // Python clamps to these
  const int64_t begin = axis.has_begin() ? std::clamp(from_end(axis.begin()), low, high) : step > 0 ? low : high;
  const int64_t end = axis.has_end() ? std::clamp(from_end(axis.end()), low, high) : step > 0 ? high : low;
  const int64_t distance = step > 0 ? end - begin : begin - end, stride = step > 0 ? step : -step;
  return {begin, step, distance > 0 ? (distance + stride - 1) / stride : 0};
}

}  // namespace cairn
