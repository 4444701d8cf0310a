#include "common/model/onnx/axis_order.h"

#include <numeric>

namespace cairn {

std::vector<float> InOrder(absl::Span<const float> values, const Shape& grid, const std::vector<int>& axes) {
  std::vector<float> ordered(values.size());
  WalkInOrder(grid, axes,
              [&](int64_t from, int64_t to) { ordered[static_cast<size_t>(to)] = values[static_cast<size_t>(from)]; });
  return ordered;
}

Shape ShapeInOrder(const Shape& grid, const std::vector<int>& axes) {
  Shape shape;
  for (const int axis : axes) shape.push_back(grid[static_cast<size_t>(axis)]);
  return shape;
}

std::vector<int> InverseOrder(const std::vector<int>& axes) {
  std::vector<int> inverse(axes.size());
  for (size_t i = 0; i < axes.size(); ++i) inverse[static_cast<size_t>(axes[i])] = static_cast<int>(i);
  return inverse;
}

std::vector<int> SameOrder(size_t rank) {
  std::vector<int> axes(rank);
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

std::vector<int> AxisFirst(size_t rank, int axis) {
  std::vector<int> order = SameOrder(rank);
  order.erase(order.begin() + axis);
  order.insert(order.begin(), axis);
  return order;
}

std::vector<int> AxisLast(size_t rank, int axis) {
  std::vector<int> order = SameOrder(rank);
  order.erase(order.begin() + axis);
  order.push_back(axis);
  return order;
}

std::vector<int> ChannelsLast(size_t rank) { return AxisLast(rank, 0); }

}  // namespace cairn
