// Tensors with permuted axes: maps the elements of one to those of the other.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "common/tensor/buffer.h"

namespace cairn {

// Iterates, row by row, over the tensor that is `grid` with its axes permuted to `axes` (its axis i is the grid's axis
// axes[i]). Calls visit(position in the grid, position in the tensor) for each element. axes: a permutation.
template <typename Visit>
void WalkInOrder(const Shape& grid, const std::vector<int>& axes, const Visit& visit) {
  const size_t rank = grid.size();
  std::vector<int64_t> grid_strides(rank, 1), strides(rank), sizes(rank), at(rank, 0);
  for (size_t i = rank; i-- > 1;) grid_strides[i - 1] = grid_strides[i] * grid[i];
  for (size_t i = 0; i < rank; ++i) {
    strides[i] = grid_strides[static_cast<size_t>(axes[i])];
    sizes[i] = grid[static_cast<size_t>(axes[i])];
  }
  const int64_t count = NumElements(grid);
  int64_t from = 0;
  for (int64_t to = 0; to < count; ++to) {
    visit(from, to);
    for (size_t i = rank; i-- > 0;) {
      from += strides[i];
      if (++at[i] < sizes[i]) break;
      from -= strides[i] * sizes[i];
      at[i] = 0;
    }
  }
}

// The tensor of WalkInOrder. `values`: those of the grid, row by row.
std::vector<float> InOrder(absl::Span<const float> values, const Shape& grid, const std::vector<int>& axes);

// Its shape.
Shape ShapeInOrder(const Shape& grid, const std::vector<int>& axes);

std::vector<int> InverseOrder(const std::vector<int>& axes);
std::vector<int> SameOrder(size_t rank);            // 0, 1, ...
std::vector<int> AxisFirst(size_t rank, int axis);  // the other axes follow in their order
std::vector<int> AxisLast(size_t rank, int axis);
std::vector<int> ChannelsLast(size_t rank);  // for [channels, height, width] or [channels, steps]

}  // namespace cairn
