// Launches that several layers are made of: each adds its steps to the plan that is being built.
#pragma once

#include <cstdint>

#include "worker/backend/cudnn/builder.h"

namespace cairn::cudnn {

// Axes of tensors in another order: the examples, then up to three axes; missing ones stand first with the size 1.
struct Permutation {
  struct Axes {
    int64_t dims[4] = {1, 1, 1, 1};
    int64_t strides[4] = {0, 0, 0, 0};  // in the other tensor
  };
  Axes forward, backward;
};
// order: for each axis of the result the one it is of `from`, counted from 1 (keras.layers.Permute).
Permutation PermutationOf(int64_t examples, const Shape& from, absl::Span<const int32_t> order);

// To `to`, in its type; `add`: to what stands there.
void EmitConvert(Builder& builder, const Ref& from, DType from_type, const Ref& to, DType to_type, int64_t n,
                 bool add = false);
// C of `p` from A and B; bias only with p.bias. `add`: to what stands in C.
void EmitProduct(Builder& builder, Product p, const Ref& a, const Ref& b, const Ref& bias, const Ref& c,
                 bool add = false);
// y = f(y + bias), in place; the value `out` is y then, or, where the derivative needs f's argument, another buffer.
// Returns y before f where backward needs it.
Ref EmitActivation(Builder& builder, const Activation& f, const Ref& y, const Ref& bias, int64_t columns, Value* out);
// Turns out's gradient into that of what stood before f, in place.
void EmitActivationBackward(Builder& builder, const Activation& f, const Ref& before, int64_t columns, Value* out);
void EmitPermute(Builder& builder, const Permutation::Axes& axes, const Ref& from, const Ref& to, DType type, bool add);
// Images or volumes of w.in into the middle of those of w.out, zeros around (w.pad, w.depth.pad); and the other way. Of
// volumes: first within the planes, then of whole planes.
void EmitPad(Builder& builder, const kernels::Window& w, const Ref& from, const Ref& to, DType type);
void EmitCrop(Builder& builder, const kernels::Window& w, const Ref& from, const Ref& to, DType type, bool add);
// The window within the planes of volumes, and that of whole planes: as images whose rows are the planes.
kernels::Window WithinPlanes(const kernels::Window& w);
kernels::Window OfPlanes(const kernels::Window& w);
void EmitColumnSums(Builder& builder, const Ref& x, int64_t rows, int64_t columns, const Ref& sums, DType type);

}  // namespace cairn::cudnn
