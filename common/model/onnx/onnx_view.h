// OnnxView: what an ONNX value is of a layer's output. Transpose, Reshape, Flatten and the like move no numbers; they
// change the view, and only a layer that cannot do with the numbers as they lie makes Permute and Reshape layers of it.
//
// The layer's numbers, row by row, are a tensor `grid`. With its axes in the order `axes` it holds the value's numbers
// row by row; `dims` is the value's shape. All without the batch.
//
// Values. Invariants: NumElements(grid) == NumElements(dims) == the layer's; axes is a permutation of grid's.
#pragma once

#include <optional>
#include <vector>

#include "common/base/status.h"
#include "common/tensor/buffer.h"

namespace cairn {

struct OnnxView {
  int layer = 0;
  Shape grid;
  std::vector<int> axes;
  Shape dims;

  static OnnxView Of(int layer, const Shape& shape);  // as the layer gives it
  // The layer's output has the value's axes in the order `order`: value axis order[i] is the layer's axis i.
  static OnnxView Of(int layer, const Shape& shape, const std::vector<int>& order);

  // The same numbers in the same order under other dims.
  OnnxView As(Shape new_dims) const;
  // Axis i of the result is this one's axis order[i]. nullopt: a Reshape between two transpositions that cannot be
  // looked through.
  std::optional<OnnxView> Transposed(const std::vector<int>& order) const;
  // The numbers lie in the layer as the value has them.
  bool InPlace() const;
  // Its axes in the order in which the layer has them, where it has them as they are; else as they are.
  std::vector<int> LayerOrder() const;
  // An axis as ONNX counts them, batch included and negative from the end, as one of dims. Errors: the batch; none.
  absl::StatusOr<int> AxisOf(int64_t axis) const;
  // Axes of 1 dropped, neighbours that stay together joined.
  OnnxView Simplified() const;
};

}  // namespace cairn
