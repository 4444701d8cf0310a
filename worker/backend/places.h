// Indices into a small tensor that is repeated along some axes of an example.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/model/graph.h"

namespace cairn {

// For each number of `shape`, in order, its index in `small`, a shape of as many axes, each of the same size or 1.
inline std::vector<int32_t> RepeatedPlaces(const Shape& small, const Shape& shape) {
  std::vector<int32_t> places(static_cast<size_t>(NumElements(shape)));
  for (size_t i = 0; i < places.size(); ++i) {
    int64_t rest = static_cast<int64_t>(i), place = 0, stride = 1;
    for (size_t axis = shape.size(); axis-- > 0;) {
      if (small[axis] != 1) place += rest % shape[axis] * stride;
      stride *= small[axis];
      rest /= shape[axis];
    }
    places[i] = static_cast<int32_t>(place);
  }
  return places;
}

// `shape` with size 1 along all axes except these, which count from 1.
template <typename Axes>
Shape ShapeAlong(const Shape& shape, const Axes& axes) {
  Shape along(shape.size(), 1);
  for (const int32_t axis : axes) along[static_cast<size_t>(axis) - 1] = shape[static_cast<size_t>(axis) - 1];
  return along;
}

}  // namespace cairn
