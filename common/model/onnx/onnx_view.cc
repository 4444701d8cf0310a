#include "common/model/onnx/onnx_view.h"

#include <algorithm>

#include "common/base/bad.h"
#include "common/base/lacks.h"
#include "common/model/onnx/axis_order.h"

namespace cairn {

OnnxView OnnxView::Of(int layer, const Shape& shape) { return {layer, shape, SameOrder(shape.size()), shape}; }

OnnxView OnnxView::Of(int layer, const Shape& shape, const std::vector<int>& order) {
  const std::vector<int> axes = InverseOrder(order);
  return {layer, shape, axes, ShapeInOrder(shape, axes)};
}

OnnxView OnnxView::As(Shape new_dims) const { return {layer, grid, axes, std::move(new_dims), batch}; }

OnnxView OnnxView::WithBatchAt(int place) const { return {layer, grid, axes, dims, place}; }

std::optional<OnnxView> OnnxView::Transposed(const std::vector<int>& order) const {
  // Split the grid's axes so that each of the value's axes is a run of pieces.
  const Shape ordered = ShapeInOrder(grid, axes);
  Shape pieces;                           // of the ordered grid
  std::vector<int> dim_of, grid_axis_of;  // by piece
  size_t d = 0, g = 0;
  int64_t dim_left = dims.empty() ? 1 : dims[0], grid_left = ordered.empty() ? 1 : ordered[0];
  while (d < dims.size() || g < ordered.size()) {
    if (d < dims.size() && dim_left == 1) {
      if (++d < dims.size()) dim_left = dims[d];
      continue;
    }
    if (g < ordered.size() && grid_left == 1) {
      if (++g < ordered.size()) grid_left = ordered[g];
      continue;
    }
    const int64_t piece = std::min(dim_left, grid_left);
    if (dim_left % piece != 0 || grid_left % piece != 0) return std::nullopt;
    pieces.push_back(piece);
    dim_of.push_back(static_cast<int>(d));
    grid_axis_of.push_back(axes[g]);
    dim_left /= piece;
    grid_left /= piece;
  }
  // The pieces in the grid's order: by grid axis, those of one axis in their order.
  const int count = static_cast<int>(pieces.size());
  std::vector<int> by_grid = SameOrder(pieces.size()), new_place(pieces.size());
  std::stable_sort(by_grid.begin(), by_grid.end(), [&](int a, int b) {
    return grid_axis_of[static_cast<size_t>(a)] < grid_axis_of[static_cast<size_t>(b)];
  });
  OnnxView view;
  view.layer = layer;
  view.batch = batch;
  for (int i = 0; i < count; ++i) {
    view.grid.push_back(pieces[static_cast<size_t>(by_grid[static_cast<size_t>(i)])]);
    new_place[static_cast<size_t>(by_grid[static_cast<size_t>(i)])] = i;
  }
  for (const int axis : order) {
    view.dims.push_back(dims[static_cast<size_t>(axis)]);
    for (int i = 0; i < count; ++i) {
      if (dim_of[static_cast<size_t>(i)] == axis) view.axes.push_back(new_place[static_cast<size_t>(i)]);
    }
  }
  return view;
}

OnnxView OnnxView::Simplified() const {
  OnnxView view{layer, {}, {}, dims, batch};
  std::vector<int> kept;  // grid axes larger than 1, in the value's order
  for (const int axis : axes) {
    if (grid[static_cast<size_t>(axis)] > 1) kept.push_back(axis);
  }
  // Runs of axes that are adjacent and in the same order in both.
  std::vector<std::pair<int, int64_t>> runs;  // first grid axis, size
  const auto next = [&](int axis) {
    for (++axis; axis < static_cast<int>(grid.size()) && grid[static_cast<size_t>(axis)] == 1;) ++axis;
    return axis;
  };
  for (size_t i = 0; i < kept.size(); ++i) {
    if (i > 0 && kept[i] == next(kept[i - 1])) {
      runs.back().second *= grid[static_cast<size_t>(kept[i])];
    } else {
      runs.emplace_back(kept[i], grid[static_cast<size_t>(kept[i])]);
    }
  }
  std::vector<int> order = SameOrder(runs.size());
  std::sort(order.begin(), order.end(),
            [&](int a, int b) { return runs[static_cast<size_t>(a)].first < runs[static_cast<size_t>(b)].first; });
  for (const int run : order) view.grid.push_back(runs[static_cast<size_t>(run)].second);
  view.axes = InverseOrder(order);
  return view;
}

bool OnnxView::InPlace() const {
  const OnnxView simple = Simplified();
  return simple.axes == SameOrder(simple.grid.size());
}

std::vector<int> OnnxView::LayerOrder() const {
  return dims == ShapeInOrder(grid, axes) ? InverseOrder(axes) : SameOrder(dims.size());
}

absl::StatusOr<int> OnnxView::AxisOf(int64_t axis) const {
  const int64_t rank = static_cast<int64_t>(dims.size()) + 1;
  if (axis < -rank || axis >= rank) return Bad("axis ", axis, " of a value of ", rank, " dimensions");
  if (axis < 0) axis += rank;
  if (axis == batch) return Lacks("it works along the batch, axis ", batch);
  return static_cast<int>(axis < batch ? axis : axis - 1);
}

}  // namespace cairn
