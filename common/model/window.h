// The axes of a Window (common/model/graph.h), and how a window slides along one of them.
//
// Pure functions; any thread. Axis i of `rank`: the last two are height and width, the first of three is the depth; a
// sequence is an image of height 1.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cairn/v1/layer_fields.pb.h"
#include "common/model/graph.h"

namespace cairn {

inline WindowAxis AxisOf(const Window& window, int rank, int i) {
  const int at = i - (rank - 2);
  if (at < 0) return window.depth;
  return {window.kernel[at], window.strides[at], window.dilation[at], window.pad_begin[at], window.pad_end[at]};
}

inline void SetAxis(const WindowAxis& axis, int rank, int i, Window* window) {
  const int at = i - (rank - 2);
  if (at < 0) {
    window->depth = axis;
    return;
  }
  window->kernel[at] = axis.kernel;
  window->strides[at] = axis.stride;
  window->dilation[at] = axis.dilation;
  window->pad_begin[at] = axis.pad_begin;
  window->pad_end[at] = axis.pad_end;
}

// The extent of one position of the window, in numbers.
inline int64_t ReachOf(const WindowAxis& axis) { return (axis.kernel - 1) * axis.dilation + 1; }

// Sets the pads of an axis that slides along `size` places, by TensorFlow's rules, and returns how many positions it
// has; 0: it is larger than what it slides along. CAUSAL: all of SAME's padding is before the first place.
inline int64_t SlideAxis(int64_t size, v1::Padding padding, WindowAxis* axis) {
  const int64_t reach = ReachOf(*axis);
  if (padding == v1::SAME) {
    const int64_t positions = (size + axis->stride - 1) / axis->stride;
    const int64_t pads = std::max<int64_t>(0, (positions - 1) * axis->stride + reach - size);
    axis->pad_begin = pads / 2;
    axis->pad_end = pads - pads / 2;
    return positions;
  }
  if (padding == v1::CAUSAL) axis->pad_begin = reach - 1;
  return size + axis->pad_begin < reach ? 0 : (size + axis->pad_begin - reach) / axis->stride + 1;
}

}  // namespace cairn
