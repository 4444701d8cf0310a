// Launches that several layers use. Each function adds steps to the plan that is being built; as for Builder, one
// thread.
#pragma once

#include <cstdint>

#include "worker/backend/cudnn/builder.h"

namespace cairn::cudnn {

// A permutation of the axes of a tensor: the examples, then up to five axes; missing axes come first, with size 1.
struct Permutation {
  struct Axes {
    int64_t dims[kernels::kAxesMax] = {1, 1, 1, 1, 1, 1};
    int64_t strides[kernels::kAxesMax] = {};  // in the other tensor
  };
  Axes forward, backward;
};
// order: for each axis of the result the axis of `from`, counted from 1 (keras.layers.Permute).
Permutation PermutationOf(int64_t examples, const Shape& from, absl::Span<const int32_t> order);

// What layers draw their random numbers with; of a layer within another one that of WithinLayer
// (worker/backend/dropout.h).
Ref KeyOf(Builder& builder);
// The examples of the batch, also where steps are part of it.
int64_t BatchExamples(Builder& builder);
// Where numbers are, and of which type.
struct TypedRef {
  Ref ref;
  DType type;
};
// Copies n numbers to another type. add: adds them to `to`.
void EmitConvert(Builder& builder, const TypedRef& from, const TypedRef& to, int64_t n, bool add = false);
// Computes C from A and B. add: adds to C. bias: added to each row; empty: there is none.
void EmitProduct(Builder& builder, const Product& p, const Ref& a, const Ref& b, const Ref& c, bool add = false);
void EmitBiasedProduct(Builder& builder, const Product& p, const Ref& a, const Ref& b, const Ref& bias, const Ref& c);
// Softmax, its logarithm and sparsemax, row by row; `to` may be the place that is read. Backward: `to` may be dy
// without `add`.
struct RowShape {
  int64_t rows = 0, columns = 0;
  DType type;
};
void EmitRows(Builder& builder, const Activation& f, const RowShape& shape, const Ref& x, const Ref& to);
void EmitRowsBackward(Builder& builder, const Activation& f, const RowShape& shape, const Ref& y, const Ref& dy,
                      const Builder::Sink& to);
// y = f(y + bias), in place, and out->data = y. If the derivative needs the argument of f, the result goes to another
// buffer, and y before f is returned for backward.
Ref EmitActivation(Builder& builder, const Activation& f, const Ref& y, const Ref& bias, int64_t columns, Value* out);
// Turns the gradient of `out` into that of the argument of f, in place.
void EmitActivationBackward(Builder& builder, const Activation& f, const Ref& before, int64_t columns, Value* out);
void EmitPermute(Builder& builder, const Permutation::Axes& axes, const Ref& from, const Ref& to, DType type, bool add);
// EmitPad copies images or volumes of w.in into the middle of those of w.out, with zeros around them (w.pad,
// w.depth.pad); EmitCrop does the reverse. Volumes are padded first within the planes, then by whole planes.
void EmitPad(Builder& builder, const kernels::Window& w, const Ref& from, const Ref& to, DType type);
void EmitCrop(Builder& builder, const kernels::Window& w, const Ref& from, const Ref& to, DType type, bool add);
// The window within the planes of volumes, and the window over whole planes: that of images whose rows are the planes.
kernels::Window WithinPlanes(const kernels::Window& w);
kernels::Window OfPlanes(const kernels::Window& w);
void EmitColumnSums(Builder& builder, const Ref& x, int64_t rows, int64_t columns, const Ref& sums, DType type);

}  // namespace cairn::cudnn
