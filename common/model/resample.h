// What resizing, cropping from the middle and adaptive pooling make each place of their output of: along each axis a
// few neighbouring places of the input, weighted. Such a layer is one linear map after another, an axis each.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/graph.h"

namespace cairn {

// A place of the output: of the input's places first, first + 1, ... Weights add up to 1, with `outside`: the share of
// what padding lies around the input.
struct ResampledPlace {
  int64_t first = 0;
  std::vector<double> weights;  // none: all of it lies outside
  double outside = 0;
};

struct ResampledAxis {
  int64_t in = 0;
  std::vector<ResampledPlace> places;
  bool identity() const;  // every place is that of the input
};

// The places that window `i` of an adaptive pooling covers: [begin, end).
struct AdaptiveWindow {
  int64_t begin = 0, end = 0;
};
AdaptiveWindow AdaptiveWindowOf(int64_t i, int64_t in, int64_t out);

// Of Resizing, CenterCrop and the adaptive average poolings: for each axis but the channels. input: the layer's input's
// shape.
// The part of an axis that Resizing and CenterCrop resize: `size` places from `begin`; those outside the input are
// padding.
struct ResampledBox {
  int64_t begin = 0, size = 0;
};
ResampledBox ResampledBoxOf(const Node& node, const Shape& input, int axis);

std::vector<ResampledAxis> ResampledAxesOf(const Node& node, const Shape& input);
float FillOf(const Node& node);  // what lies around the input; 0 of layers that never look there

}  // namespace cairn
