// Resizing, center cropping and adaptive pooling: each position of the output is a weighted sum of a few neighbouring
// positions of the input along each axis. Such a layer is a sequence of linear maps, one per axis.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/graph.h"

namespace cairn {

// One position of the output. It is computed from the input's positions first, first + 1, ... The weights and
// `outside`, the share of the padding around the input, add up to 1.
struct ResampledPlace {
  int64_t first = 0;
  std::vector<double> weights;  // empty: the position is entirely outside the input
  double outside = 0;
};

struct ResampledAxis {
  int64_t in = 0;
  std::vector<ResampledPlace> places;
  bool identity() const;  // every position is that of the input
};

// The input positions that window `i` of an adaptive pooling covers: [begin, end).
struct AdaptiveWindow {
  int64_t begin = 0, end = 0;
};
AdaptiveWindow AdaptiveWindowOf(int64_t i, int64_t in, int64_t out);

// The part of an axis that Resizing and CenterCrop resize: `size` positions from `begin`; those outside the input are
// padding.
// padding.
struct ResampledBox {
  int64_t begin = 0, size = 0;
};
ResampledBox ResampledBoxOf(const Node& node, const Shape& input, int axis);

// One entry for each axis except the channels, for Resizing, CenterCrop and the adaptive average poolings. input: the
// shape of the layer's input.
std::vector<ResampledAxis> ResampledAxesOf(const Node& node, const Shape& input);
float FillOf(const Node& node);  // the value around the input; 0 for layers that never read there

}  // namespace cairn
