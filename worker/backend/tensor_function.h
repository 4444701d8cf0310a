// TensorFunction: the layers without variables that work on tensors (Operation, Subtract, Minimum, Reduce, Slice,
// Stack, Pad, Tile, Take, OneHot, TopK, Einsum, and an Activation with GLU), forward and backward, for one node and one
// number of examples. Used by the backends on the CPU: by the reference in float64, by oneDNN in float32. The formulas
// are those of tf.math and of its gradients.
//
// Immutable after construction; any thread. Tensors are dense, [examples, shape...], channels last.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "common/model/graph.h"

namespace cairn {

template <typename T>
class TensorFunction {
 public:
  virtual ~TensorFunction() = default;

  // x: the inputs. Overwrites y.
  virtual void Forward(absl::Span<const T* const> x, T* y) const = 0;
  // Adds the gradient with respect to input `which` to dx. It is float64, since many numbers of y may depend on one of
  // x.
  virtual void Backward(absl::Span<const T* const> x, const T* y, const T* dy, size_t which, double* dx) const = 0;
};

// T: float or double. Null if the node is not such a layer.
template <typename T>
std::unique_ptr<TensorFunction<T>> MakeTensorFunction(const Graph& graph, const Node& node, int64_t examples);

}  // namespace cairn
