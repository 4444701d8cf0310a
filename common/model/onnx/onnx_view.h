// OnnxView: how an ONNX value is derived from a layer's output. Transpose, Reshape, Flatten and similar operators move
// no numbers; they only change the view. Permute and Reshape layers are created only for a layer that cannot use the
// numbers in their present order.
//
// The layer's numbers, row by row, form a tensor of shape `grid`. Permuting its axes to the order `axes` gives the
// value's numbers row by row. `dims` is the value's shape. None of them includes the batch axis. A layer's output has
// the batch first; among the axes of the value, it is at place `batch`: axis i of dims is the value's axis i if
// i < batch, otherwise i + 1. Recurrent operators have [steps, batch, features], for one.
//
// Value types. Invariants: NumElements(grid) == NumElements(dims) == that of the layer; axes is a permutation of grid's
// axes.
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
  int batch = 0;

  static OnnxView Of(int layer, const Shape& shape);  // unchanged
  // The layer's output has the value's axes permuted to `order`: the value's axis order[i] is the layer's axis i.
  static OnnxView Of(int layer, const Shape& shape, const std::vector<int>& order);

  // The same numbers in the same order with another shape.
  OnnxView As(Shape new_dims) const;
  // Axis i of the result is axis order[i] of this view. nullopt: it contains a Reshape between two transpositions that
  // cannot be represented.
  std::optional<OnnxView> Transposed(const std::vector<int>& order) const;
  // Whether the layer has the numbers in the value's order.
  bool InPlace() const;
  // The value with the batch at another place, and the axes of dims in their order.
  OnnxView WithBatchAt(int place) const;
  // The place of the batch if an axis of dims is left out.
  int BatchWithout(int axis) const { return axis < batch ? batch - 1 : batch; }
  // The value's axes in the layer's order if the layer has the same axes; otherwise unpermuted.
  std::vector<int> LayerOrder() const;
  // Maps an axis as ONNX counts them (batch included, negative from the end) to an index of dims. Errors: it is the
  // batch, or out of range.
  absl::StatusOr<int> AxisOf(int64_t axis) const;
  // The view without axes of size 1, and with neighbouring axes merged where they stay adjacent.
  OnnxView Simplified() const;
};

}  // namespace cairn
