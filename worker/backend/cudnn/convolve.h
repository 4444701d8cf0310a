// Launches of convolutions and of their gradients, for the layers that are made of them. Each function adds steps to
// the plan that is being built; as for Builder, one thread.
//
// Invariants:
//   1. Images are of Builder::type(), and so are the copies of kernels, [out, depth, height, width, in].
//   2. Where the padding differs between the two sides of an axis, the launch is of a padded copy (machine.h).
#pragma once

#include <cstdint>

#include "worker/backend/cudnn/builder.h"

namespace cairn::cudnn {

// The window on images, sequences or volumes: of these shapes, without the examples.
kernels::Window WindowOn(const Window& window, const Shape& in, const Shape& out, int64_t examples);

// The numbers of the images under the window, of its outputs, and of the kernel of one output channel.
int64_t Inputs(const kernels::Window& w);
int64_t Outputs(const kernels::Window& w);
int64_t KernelRows(const kernels::Window& w);

// The variable, of Keras' layout, as convolutions take it.
Ref EmitKernelCopy(Builder& builder, const kernels::Window& w, const Variable* kernel);

void EmitForward(Builder& builder, const kernels::Window& w, const Ref& x, const Ref& kernel, const Ref& y);
// With bias and relu as one launch. bias: float32. False, with nothing emitted, if the machine has no such launch.
bool EmitFused(Builder& builder, Convolution c, const Ref& x, const Ref& kernel, const Ref& bias, const Ref& y);
// add: adds to dx.
void EmitBackwardData(Builder& builder, const kernels::Window& w, const Ref& dy, const Ref& kernel, const Ref& dx,
                      bool add);
// The gradient of the variable.
void EmitKernelGradient(Builder& builder, const kernels::Window& w, const Ref& x, const Ref& dy,
                        const Variable* kernel);

}  // namespace cairn::cudnn
