#include "worker/backend/onednn/recurrence.h"

#include <cstring>

#include "worker/backend/onednn/matrix_product.h"

namespace cairn::onednn {
namespace {

Activation ActivationOf(v1::Activation kind) { return {kind, RecurrentAlpha(kind)}; }

// Null: there is none (index -1).
const Variable* VariableAt(const PlanBuilder& b, int index) {
  return index < 0 ? nullptr : &b.graph().variables()[index];
}

}  // namespace

RecurrenceRun::RecurrenceRun(PlanBuilder& b, const Node& node, const Recurrence& recurrence)
    : s_(recurrence, b.examples(), b.graph().nodes()[node.inputs[0]].output),
      cell_{s_.step_rows(), s_.units(), ActivationOf(recurrence.activation),
            ActivationOf(recurrence.recurrent_activation)},
      kernel_(b, VariableAt(b, recurrence.kernel)),
      recurrent_(b, VariableAt(b, recurrence.recurrent_kernel)),
      bias_(b, VariableAt(b, recurrence.bias)),
      input_(b, node, s_),
      states_(b, node, s_),
      input_rows_(b, s_, ProductRows::Of::kInput),
      state_rows_(b, s_, ProductRows::Of::kState) {
  Activations& a = activations_;
  const int64_t parts = s_.positions() * s_.width();
  a.parts = StepBuffer(b, s_.steps, parts);
  if (b.training() && cell_.keeps_raw()) a.raw = StepBuffer(b, s_.steps, parts);
  if (s_.r.cell == RecurrentCell::kLstm) {
    a.c = StepBuffer(b, s_.steps + 1, s_.state_numbers());
    a.f_c = StepBuffer(b, s_.steps, s_.state_numbers());
  }
  if (s_.r.cell == RecurrentCell::kGru) a.reset = StepBuffer(b, s_.steps, s_.units());
  if (s_.ResetsAfter()) a.of_state = StepBuffer(b, 1, s_.width());
}

void RecurrenceRun::CompileBackward(PlanBuilder& b) {
  input_.CompileBackward(b);
  states_.CompileBackward(b);
  input_rows_.Use(b);
  state_rows_.Use(b);
  const Activations& a = activations_;
  for (const StepBuffer* buffer : {&a.parts, &a.raw, &a.c, &a.f_c, &a.reset}) buffer->Use(b);
  Gradients& g = gradients_;
  g.parts = StepBuffer(b, s_.steps, s_.positions() * s_.width());
  g.h = StepBuffer(b, 1, s_.state_numbers());
  g.dropped = StepBuffer(b, 1, s_.state_numbers());
  if (s_.r.cell == RecurrentCell::kLstm) g.c = StepBuffer(b, 1, s_.state_numbers());
  if (s_.ResetsAfter()) g.of_state = StepBuffer(b, s_.steps, s_.width());
  if (s_.ResetsBefore()) g.reset = StepBuffer(b, 1, s_.units());
}

StepMask RecurrenceRun::MaskOf(const float* step_mask, int64_t step) const {
  if (step_mask == nullptr) return {};
  return {step_mask + s_.InputStep(step), s_.steps, s_.positions()};
}

// ---- forward ----

void RecurrenceRun::Forward(const Run& run, const float* x, const float* h, const float* c, const float* step_mask) {
  const int64_t width = s_.width(), depth = input_rows_.width(), blocks = input_rows_.blocks();
  const int64_t rows = s_.rows() / blocks;
  float* const parts = activations_.parts.data();
  input_.Pack(run, x);
  for (int64_t block = 0; block < blocks; ++block) {
    MultiplyMatrices({.m = rows, .n = width, .k = depth, .a_row = depth, .b_row = width, .c_row = width},
                     input_rows_.Make(input_.At(block)), kernel_.value(), 0, parts + block * rows * width);
  }
  if (bias_.value() != nullptr) BiasActivation({}, bias_.value(), parts, s_.rows(), width);
  states_.Begin(run, h);
  if (activations_.c) BeginStates(activations_.c, c);
  for (int64_t step = 0; step < s_.steps; ++step) ForwardStep(step, MaskOf(step_mask, step));
}

void RecurrenceRun::ForwardStep(int64_t step, const StepMask& mask) {
  states_.Drop(step);
  if (s_.r.cell == RecurrentCell::kGru) return ForwardGru(step, mask);
  const Activations& a = activations_;
  float *const parts = a.parts.At(step), *const raw = a.raw.At(step);
  const float* const h = states_.At(step);
  float* const h_next = states_.At(step + 1);
  const int64_t depth = state_rows_.width(), width = s_.width();
  MultiplyMatrices({.m = s_.step_rows(), .n = width, .k = depth, .a_row = depth, .b_row = width, .c_row = width},
                   state_rows_.Make(states_.Dropped(step)), recurrent_.value(), 1, parts);
  if (s_.r.cell == RecurrentCell::kSimple) return SimpleForward(cell_, mask, parts, raw, h, h_next);
  LstmForward(cell_, mask, parts, raw, LstmStatesOf(step));
}

LstmStates RecurrenceRun::LstmStatesOf(int64_t step) const {
  const Activations& a = activations_;
  return {.h = states_.At(step),
          .c = a.c.At(step),
          .h_next = states_.At(step + 1),
          .c_next = a.c.At(step + 1),
          .f_c = a.f_c.At(step)};
}

void RecurrenceRun::ForwardGru(int64_t step, const StepMask& mask) {
  const Activations& a = activations_;
  float *const parts = a.parts.At(step), *const raw = a.raw.At(step), *const reset = a.reset.At(step);
  const float *const h = states_.At(step), *const dropped = states_.Dropped(step);
  float* const h_next = states_.At(step + 1);
  const int64_t units = s_.units(), width = s_.width();
  MatrixProduct product{.m = s_.examples, .n = width, .k = units, .a_row = units, .b_row = width, .c_row = width};
  if (s_.r.reset_after) {
    float* const of_state = a.of_state.data();
    MultiplyMatrices(product, dropped, recurrent_.value(), 0, of_state);
    if (bias_.value() != nullptr) BiasActivation({}, bias_.value() + width, of_state, s_.examples, width);
    return GruAfterForward(cell_, mask, parts, raw,
                           {.h = h, .state_parts = of_state, .candidate = reset, .h_next = h_next});
  }
  product.n = 2 * units;
  MultiplyMatrices(product, dropped, recurrent_.value(), 1, parts);
  GruGatesForward(cell_, parts, raw, dropped, reset);
  product.n = units;
  MultiplyMatrices(product, reset, recurrent_.value() + 2 * units, 1, parts + 2 * units);
  GruCandidateForward(cell_, mask, parts, raw, h, h_next);
}

// ---- backward ----

void RecurrenceRun::Backward(const float* step_mask, float* dh_of_steps, const float* dc_of_steps) {
  const Gradients& g = gradients_;
  const int64_t size = g.h.step_numbers();
  std::memset(g.h.data(), 0, size * sizeof(float));
  if (g.c) std::memset(g.c.data(), 0, size * sizeof(float));
  for (int64_t step = s_.steps; step-- > 0;) {
    const bool goes_out = s_.r.return_sequences || step + 1 == s_.steps;
    const int64_t place = s_.r.return_sequences ? step : 0;
    if (goes_out) AddTo(dh_of_steps + place * size, g.h.data(), size);
    if (goes_out && dc_of_steps != nullptr) AddTo(dc_of_steps + place * size, g.c.data(), size);
    BackwardStep(step, MaskOf(step_mask, step));
  }
  if (kernel_.trains()) ComputeWeightGradients();
}

void RecurrenceRun::BackwardStep(int64_t step, const StepMask& mask) {
  const Activations& a = activations_;
  const Gradients& g = gradients_;
  const float *const parts = a.parts.At(step), *const raw = a.raw.At(step), *const h = states_.At(step);
  float *const dparts = g.parts.At(step), *const dh = g.h.data(), *const ddropped = g.dropped.data();
  const float* of_product = dparts;  // the gradient of Dropped(step) times the recurrent kernel
  const int64_t units = s_.units(), width = s_.width(), depth = state_rows_.width(), size = g.h.step_numbers();
  MatrixProduct product{
      .transpose_b = 'T', .m = s_.step_rows(), .n = depth, .k = width, .a_row = width, .b_row = width, .c_row = depth};
  float beta = 0;
  switch (s_.r.cell) {
    case RecurrentCell::kSimple: SimpleBackward(cell_, mask, parts, raw, dh, dparts); break;
    case RecurrentCell::kLstm:
      LstmBackward(cell_, mask, parts, raw, LstmStatesOf(step), {.h = dh, .c = g.c.data(), .parts = dparts});
      break;
    case RecurrentCell::kGru:
      if (s_.r.reset_after) {
        GruAfterBackward(cell_, mask, parts, raw, {.h = h, .candidate = a.reset.At(step)},
                         {.h = dh, .parts = dparts, .state_parts = g.of_state.At(step)});
        of_product = g.of_state.At(step);
        break;
      }
      GruCandidateBackward(cell_, mask, parts, raw, h, {.h = dh, .parts = dparts});
      product.k = units;
      MultiplyMatrices(product, dparts + 2 * units, recurrent_.value() + 2 * units, 0, g.reset.data());
      GruGatesBackward(cell_, parts, raw, states_.Dropped(step), g.reset.data(), dparts);
      std::memcpy(ddropped, g.reset.data(), size * sizeof(float));
      product.k = 2 * units;
      beta = 1;
      break;
  }
  MultiplyMatrices(product, of_product, recurrent_.value(), beta, state_rows_.gradient(ddropped));
  state_rows_.Finish(ddropped);
  states_.DropGradient(ddropped);
  AddTo(ddropped, dh, size);
}

void RecurrenceRun::ComputeWeightGradients() const {
  const float* const dparts = gradients_.parts.data();
  const float* const of_state = gradients_.of_state.data();  // with reset_after
  const int64_t units = s_.units(), width = s_.width(), rows = s_.rows(), blocks = input_rows_.blocks();
  MatrixProduct product{.transpose_a = 'T', .m = input_rows_.width(), .n = width, .k = rows / blocks};
  product.a_row = product.m, product.b_row = width, product.c_row = width;
  for (int64_t block = 0; block < blocks; ++block) {
    MultiplyMatrices(product, input_rows_.Make(input_.At(block)), dparts + block * product.k * width, block > 0,
                     kernel_.gradient());
  }
  product.m = product.a_row = state_rows_.width();
  float* const to = recurrent_.gradient();
  if (s_.ResetsBefore()) {
    product.n = 2 * units;
    MultiplyMatrices(product, states_.Dropped(0), dparts, 0, to);
    product.n = units;
    MultiplyMatrices(product, activations_.reset.data(), dparts + 2 * units, 0, to + 2 * units);
  } else {
    const float* const d = s_.ResetsAfter() ? of_state : dparts;
    for (int64_t block = 0; block < blocks; ++block) {
      MultiplyMatrices(product, state_rows_.Make(states_.Dropped(block)), d + block * product.k * width, block > 0, to);
    }
  }
  if (!bias_.trains()) return;
  ColumnSums(dparts, rows, width, width, bias_.gradient());
  if (s_.ResetsAfter()) ColumnSums(of_state, rows, width, width, bias_.gradient() + width);
}

void RecurrenceRun::AddInputGradient(float* dx) const {
  const int64_t depth = input_rows_.width(), width = s_.width(), blocks = input_rows_.blocks();
  const int64_t rows = s_.rows() / blocks;
  for (int64_t block = 0; block < blocks; ++block) {
    float* const to = input_.gradient(block);
    MultiplyMatrices(
        {.transpose_b = 'T', .m = rows, .n = depth, .k = width, .a_row = width, .b_row = width, .c_row = depth},
        gradients_.parts.data() + block * rows * width, kernel_.value(), 0, input_rows_.gradient(to));
    input_rows_.Finish(to);
  }
  input_.AddGradient(dx);
}

}  // namespace cairn::onednn
