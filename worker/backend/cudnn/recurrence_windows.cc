#include "worker/backend/cudnn/recurrence_windows.h"

#include "worker/backend/cudnn/convolve.h"
#include "worker/backend/cudnn/launches.h"

namespace cairn::cudnn {
namespace {

Shape StateOf(const RecurrenceShape& s) {
  Shape state = s.r.windows.sides;
  state.push_back(s.units());
  return state;
}

}  // namespace

RecurrenceWindows::RecurrenceWindows(Builder& builder, const RecurrenceShape& shape)
    : b_(builder),
      s_(shape),
      input_(WindowOf(shape.r.windows.input, shape.step, shape.steps * shape.examples)),
      state_(WindowOf(shape.r.windows.state, StateOf(shape), shape.examples)),
      all_states_(WindowOf(shape.r.windows.state, StateOf(shape), shape.steps * shape.examples)),
      kernel_(&builder.graph().variables()[shape.r.kernel]),
      recurrent_(&builder.graph().variables()[shape.r.recurrent_kernel]) {}

kernels::Window RecurrenceWindows::WindowOf(const Window& window, const Shape& step, int64_t examples) const {
  Shape parts = s_.r.windows.sides;
  parts.push_back(s_.width());
  return WindowOn(window, step, parts, examples);
}

void RecurrenceWindows::ReadKernels() {
  kernel_copy_ = EmitKernelCopy(b_, input_, kernel_);
  recurrent_copy_ = EmitKernelCopy(b_, state_, recurrent_);
}

void RecurrenceWindows::EmitInput(const Ref& packed, const Ref& parts) const {
  const DType type = b_.type();
  if (type == DType::kFloat32) return EmitForward(b_, input_, packed, kernel_copy_, parts);
  const int64_t numbers = Outputs(input_);
  const Ref result = b_.NewNumbers(numbers, type);
  EmitForward(b_, input_, packed, kernel_copy_, result);
  EmitConvert(b_, {result, type}, {parts, DType::kFloat32}, numbers);
}

void RecurrenceWindows::EmitState(const Ref& state, const Ref& parts) const {
  const int64_t numbers = Outputs(state_);
  const Ref result = b_.NewNumbers(numbers, b_.type());
  EmitForward(b_, state_, state, recurrent_copy_, result);
  EmitConvert(b_, {result, b_.type()}, {parts, DType::kFloat32}, numbers, /*add=*/true);
}

void RecurrenceWindows::EmitStateGradient(const Ref& dparts, const Ref& dstate) const {
  const DType type = b_.type();
  if (type == DType::kFloat32) return EmitBackwardData(b_, state_, dparts, recurrent_copy_, dstate, false);
  const int64_t numbers = Inputs(state_);
  const Ref result = b_.NewNumbers(numbers, type);
  EmitBackwardData(b_, state_, dparts, recurrent_copy_, result, false);
  EmitConvert(b_, {result, type}, {dstate, DType::kFloat32}, numbers);
}

void RecurrenceWindows::EmitKernelGradients(const Ref& packed, const Ref& states, const Ref& dparts) const {
  EmitKernelGradient(b_, input_, packed, dparts, kernel_);
  EmitKernelGradient(b_, all_states_, states, dparts, recurrent_);
}

void RecurrenceWindows::EmitInputGradient(const Ref& dparts, const Ref& dpacked) const {
  EmitBackwardData(b_, input_, dparts, kernel_copy_, dpacked, false);
}

}  // namespace cairn::cudnn
