// RecurrenceWindows: the products of a ConvLSTM, which are convolutions (common/model/recurrent.h): that of the input
// is one launch for all steps, whose examples it takes as one batch; so are the gradients of both kernels and of the
// input. That of the state is a launch for each step.
//
// Part of RecurrenceLowering: used by one thread, while a plan is built. Invariants: parts and the gradient of the
// state are float32; all else is of Builder::type().
#pragma once

#include "worker/backend/cudnn/builder.h"
#include "worker/backend/recurrence_shape.h"

namespace cairn::cudnn {

class RecurrenceWindows {
 public:
  RecurrenceWindows(Builder& builder, const RecurrenceShape& shape);

  // Emits the copies of the kernels; called first.
  void ReadKernels();
  // parts = x W of all steps. packed: the inputs, ordered by step.
  void EmitInput(const Ref& packed, const Ref& parts) const;
  // Adds h U of one step to its parts.
  void EmitState(const Ref& state, const Ref& parts) const;
  // dstate: the gradient of the state through h U. dparts: of the step.
  void EmitStateGradient(const Ref& dparts, const Ref& dstate) const;

  // Of all steps. states: what met the recurrent kernel.
  void EmitKernelGradients(const Ref& packed, const Ref& states, const Ref& dparts) const;
  void EmitInputGradient(const Ref& dparts, const Ref& dpacked) const;

 private:
  // A convolution from images of the input, or of the state, to the parts.
  kernels::Window WindowOf(const Window& window, const Shape& step, int64_t examples) const;

  Builder& b_;
  const RecurrenceShape s_;
  const kernels::Window input_;               // of all steps
  const kernels::Window state_, all_states_;  // of one step, and of all steps
  const Variable* const kernel_;
  const Variable* const recurrent_;
  Ref kernel_copy_, recurrent_copy_;
};

}  // namespace cairn::cudnn
