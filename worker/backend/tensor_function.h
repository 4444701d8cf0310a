// TensorFunction: what the layers on tensors without variables compute: Operation, Subtract, Minimum, Reduce and Slice,
// forward and backward, for one node and number of examples. Of the backends on the CPU: the reference in float64,
// oneDNN in float32. Formulas are those of tf.math and of its gradients.
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

  // x: of each input. y is overwritten.
  virtual void Forward(absl::Span<const T* const> x, T* y) const = 0;
  // Adds the gradient with regard to input `which` to dx: as float64, for a number of which many of y may depend.
  virtual void Backward(absl::Span<const T* const> x, const T* y, const T* dy, size_t which, double* dx) const = 0;
};

// T: float or double. Null: the kind is none of these.
template <typename T>
std::unique_ptr<TensorFunction<T>> MakeTensorFunction(const Graph& graph, const Node& node, int64_t examples);

}  // namespace cairn
