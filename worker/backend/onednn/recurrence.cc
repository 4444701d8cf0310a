#include "worker/backend/onednn/recurrence.h"

#include <algorithm>
#include <cstring>

#include "worker/backend/dropout.h"

namespace cairn::onednn {
namespace {

float* Handle(const dnnl::memory& memory) { return static_cast<float*>(memory.get_data_handle()); }

// C[m][n] = A' B' + beta C, row by row; a row of B and C has `columns` numbers, of which n take part.
struct Factors {
  char transpose_a = 'N', transpose_b = 'N';
  int64_t m = 0, n = 0, k = 0;
  int64_t a_row = 0, b_row = 0, c_row = 0;  // numbers from one row to the next
};
void MultiplyMatrices(const Factors& f, const float* a, const float* b, float beta, float* c) {
  dnnl::error::wrap_c_api(
      dnnl_sgemm(f.transpose_a, f.transpose_b, f.m, f.n, f.k, 1, a, f.a_row, b, f.b_row, beta, c, f.c_row),
      "could not multiply matrices");
}

Activation ActivationOf(v1::Activation kind) { return {kind, RecurrentAlpha(kind)}; }

}  // namespace

RecurrenceRun::RecurrenceRun(PlanBuilder& b, const Node& node, const Recurrence& recurrence)
    : r_(recurrence),
      node_(node.id),
      examples_(b.examples()),
      steps_(b.graph().nodes()[node.inputs[0]].output[0]),
      features_(b.graph().nodes()[node.inputs[0]].output[1]),
      units_(recurrence.units),
      width_(recurrence.gates() * recurrence.units) {
  cell_ = {examples_, units_, ActivationOf(r_.activation), ActivationOf(r_.recurrent_activation)};
  const auto variable = [&](int index) -> const Variable& { return b.graph().variables()[index]; };
  const auto bind = [&](int index, dnnl::memory* value, dnnl::memory* gradient) {
    if (index < 0) return;
    const Desc desc = MakeDesc({variable(index).size}, Tag::x);
    *value = b.ValueOf(variable(index), desc);
    if (b.Trains(variable(index))) *gradient = b.GradientOf(variable(index), desc);
  };
  bind(r_.kernel, &kernel_, &kernel_gradient_);
  bind(r_.recurrent_kernel, &recurrent_, &recurrent_gradient_);
  bind(r_.bias, &bias_, &bias_gradient_);
  trains_ = b.Trains(variable(r_.kernel));
  drops_inputs_ = b.groups().Trains(node) && r_.dropout > 0;
  drops_states_ = b.groups().Trains(node) && r_.recurrent_dropout > 0;
  const auto rows = [&](int64_t steps, int64_t numbers) {
    return b.New(MakeDesc({steps * examples_, numbers}, Tag::nc));
  };
  x_ = rows(steps_, features_);
  parts_ = rows(steps_, width_);
  h_ = rows(steps_ + 1, units_);
  if (b.training() && cell_.keeps_raw()) raw_ = rows(steps_, width_);
  if (r_.cell == RecurrentCell::kLstm) {
    c_ = rows(steps_ + 1, units_);
    f_c_ = rows(steps_, units_);
  }
  if (r_.cell == RecurrentCell::kGru) reset_ = rows(steps_, units_);
  if (ResetsAfter()) state_parts_ = rows(1, width_);
  if (drops_inputs_) input_factors_ = rows(1, features_);
  if (drops_states_) {
    state_factors_ = rows(1, units_);
    dropped_ = rows(steps_, units_);
  }
}

void RecurrenceRun::CompileBackward(PlanBuilder& b) {
  for (Tensor* tensor : {x_, parts_, raw_, h_, c_, f_c_, dropped_, reset_, input_factors_, state_factors_}) {
    if (tensor != nullptr) b.Use(tensor);
  }
  const auto rows = [&](int64_t steps, int64_t numbers) {
    return b.New(MakeDesc({steps * examples_, numbers}, Tag::nc));
  };
  dparts_ = rows(steps_, width_);
  dh_ = rows(1, units_);
  dstate_ = rows(1, units_);
  if (r_.cell == RecurrentCell::kLstm) dc_ = rows(1, units_);
  if (ResetsAfter()) dstate_parts_ = rows(steps_, width_);
  if (ResetsBefore()) dreset_ = rows(1, units_);
  dx_ = rows(steps_, features_);
}

void RecurrenceRun::FillFactors(const Run& run) {
  const auto fill = [&](Tensor* tensor, bool of_state, float rate) {
    if (tensor == nullptr) return;
    const int64_t begin = RecurrentMaskBegin(r_, of_state, examples_, features_);
    const int64_t count = examples_ * (of_state ? units_ : features_);
    DropoutMask(run.info, node_, rate).Fill(begin, absl::MakeSpan(tensor->data(), count));
  };
  fill(input_factors_, false, r_.dropout);
  fill(state_factors_, true, r_.recurrent_dropout);
}

void RecurrenceRun::Pack(const float* x) {
#pragma omp parallel for schedule(static) if (steps_ * examples_ * features_ >= kParallelNumbersMin)
  for (int64_t step = 0; step < steps_; ++step) {
    for (int64_t e = 0; e < examples_; ++e) {
      const float* const from = x + (e * steps_ + InputStep(step)) * features_;
      float* const to = x_->data() + (step * examples_ + e) * features_;
      if (input_factors_ == nullptr) {
        std::memcpy(to, from, features_ * sizeof(float));
      } else {
        const float* const factors = input_factors_->data() + e * features_;
        for (int64_t i = 0; i < features_; ++i) to[i] = from[i] * factors[i];
      }
    }
  }
}

StepMask RecurrenceRun::MaskOf(const float* step_mask, int64_t step) const {
  if (step_mask == nullptr) return {};
  return {step_mask + InputStep(step), steps_};
}

const float* RecurrenceRun::State(int64_t step) const { return Units(dropped_ != nullptr ? dropped_ : h_, step); }

void RecurrenceRun::Forward(const Run& run, const float* x, const float* h, const float* c, const float* step_mask) {
  FillFactors(run);
  Pack(x);
  const int64_t rows = steps_ * examples_;
  MultiplyMatrices({.m = rows, .n = width_, .k = features_, .a_row = features_, .b_row = width_, .c_row = width_},
                   x_->data(), Handle(kernel_), 0, parts_->data());
  if (bias_) BiasActivation({}, Handle(bias_), parts_->data(), rows, width_);
  const auto begin = [&](Tensor* tensor, const float* from) {
    if (tensor == nullptr) return;
    const size_t bytes = examples_ * units_ * sizeof(float);
    if (from != nullptr) std::memcpy(tensor->data(), from, bytes);
    if (from == nullptr) std::memset(tensor->data(), 0, bytes);
  };
  begin(h_, h);
  begin(c_, c);
  for (int64_t step = 0; step < steps_; ++step) ForwardStep(step, MaskOf(step_mask, step));
}

void RecurrenceRun::ForwardStep(int64_t step, const StepMask& mask) {
  float* const parts = Parts(parts_, step);
  const float* const h = Units(h_, step);
  float* const h_next = Units(h_, step + 1);
  if (dropped_ != nullptr) Multiply(h, state_factors_->data(), Units(dropped_, step), examples_ * units_);
  Factors product{.m = examples_, .n = width_, .k = units_, .a_row = units_, .b_row = width_, .c_row = width_};
  switch (r_.cell) {
    case RecurrentCell::kSimple:
      MultiplyMatrices(product, State(step), Handle(recurrent_), 1, parts);
      return SimpleForward(cell_, mask, parts, Raw(step), h, h_next);
    case RecurrentCell::kLstm:
      MultiplyMatrices(product, State(step), Handle(recurrent_), 1, parts);
      return LstmForward(cell_, mask, parts, Raw(step), h, Units(c_, step), h_next, Units(c_, step + 1),
                         Units(f_c_, step));
    case RecurrentCell::kGru: break;
  }
  if (r_.reset_after) {
    float* const of_state = state_parts_->data();
    MultiplyMatrices(product, State(step), Handle(recurrent_), 0, of_state);
    if (bias_) BiasActivation({}, Handle(bias_) + width_, of_state, examples_, width_);
    return GruAfterForward(cell_, mask, parts, of_state, Raw(step), h, Units(reset_, step), h_next);
  }
  product.n = 2 * units_;
  MultiplyMatrices(product, State(step), Handle(recurrent_), 1, parts);
  GruGatesForward(cell_, parts, Raw(step), State(step), Units(reset_, step));
  product.n = units_;
  MultiplyMatrices(product, Units(reset_, step), Handle(recurrent_) + 2 * units_, 1, parts + 2 * units_);
  GruCandidateForward(cell_, mask, parts, Raw(step), h, h_next);
}

void RecurrenceRun::BackwardStep(int64_t step, const StepMask& mask) {
  const float *const parts = Parts(parts_, step), *const h = Units(h_, step);
  float *const dparts = Parts(dparts_, step), *const dh = dh_->data(), *const dstate = dstate_->data();
  const float* of_product = dparts;  // the gradient of State(step) times the kernel
  Factors product{
      .transpose_b = 'T', .m = examples_, .n = units_, .k = width_, .a_row = width_, .b_row = width_, .c_row = units_};
  float beta = 0;
  switch (r_.cell) {
    case RecurrentCell::kSimple: SimpleBackward(cell_, mask, parts, Raw(step), dh, dparts); break;
    case RecurrentCell::kLstm:
      LstmBackward(cell_, mask, parts, Raw(step), Units(c_, step), Units(c_, step + 1), Units(f_c_, step), dh,
                   dc_->data(), dparts);
      break;
    case RecurrentCell::kGru:
      if (r_.reset_after) {
        GruAfterBackward(cell_, mask, parts, Raw(step), h, Units(reset_, step), dh, dparts, Parts(dstate_parts_, step));
        of_product = Parts(dstate_parts_, step);
        break;
      }
      GruCandidateBackward(cell_, mask, parts, Raw(step), h, dh, dparts);
      product.k = units_;
      MultiplyMatrices(product, dparts + 2 * units_, Handle(recurrent_) + 2 * units_, 0, dreset_->data());
      GruGatesBackward(cell_, parts, Raw(step), State(step), dreset_->data(), dparts);
      std::memcpy(dstate, dreset_->data(), examples_ * units_ * sizeof(float));
      product.k = 2 * units_;
      beta = 1;
      break;
  }
  MultiplyMatrices(product, of_product, Handle(recurrent_), beta, dstate);
  if (state_factors_ != nullptr) Multiply(dstate, state_factors_->data(), dstate, examples_ * units_);
  AddTo(dstate, dh, examples_ * units_);
}

void RecurrenceRun::Backward(const float* step_mask, float* dh_of_steps) {
  const int64_t size = examples_ * units_, rows = steps_ * examples_;
  std::memset(dh_->data(), 0, size * sizeof(float));
  if (dc_ != nullptr) std::memset(dc_->data(), 0, size * sizeof(float));
  for (int64_t step = steps_; step-- > 0;) {
    if (r_.return_sequences) AddTo(dh_of_steps + step * size, dh_->data(), size);
    if (!r_.return_sequences && step + 1 == steps_) AddTo(dh_of_steps, dh_->data(), size);
    BackwardStep(step, MaskOf(step_mask, step));
  }
  if (!trains_) return;
  const float* const dparts = dparts_->data();
  MultiplyMatrices({.transpose_a = 'T',
                    .m = features_,
                    .n = width_,
                    .k = rows,
                    .a_row = features_,
                    .b_row = width_,
                    .c_row = width_},
                   x_->data(), dparts, 0, Handle(kernel_gradient_));
  Factors product{
      .transpose_a = 'T', .m = units_, .n = width_, .k = rows, .a_row = units_, .b_row = width_, .c_row = width_};
  float* const to = Handle(recurrent_gradient_);
  if (ResetsBefore()) {
    product.n = 2 * units_;
    MultiplyMatrices(product, State(0), dparts, 0, to);
    product.n = units_;
    MultiplyMatrices(product, reset_->data(), dparts + 2 * units_, 0, to + 2 * units_);
  } else {
    MultiplyMatrices(product, State(0), ResetsAfter() ? dstate_parts_->data() : dparts, 0, to);
  }
  if (bias_gradient_) ColumnSums(dparts, rows, width_, width_, Handle(bias_gradient_));
  if (bias_gradient_ && ResetsAfter()) {
    ColumnSums(dstate_parts_->data(), rows, width_, width_, Handle(bias_gradient_) + width_);
  }
}

void RecurrenceRun::AddInputGradient(float* dx) const {
  MultiplyMatrices({.transpose_b = 'T',
                    .m = steps_ * examples_,
                    .n = features_,
                    .k = width_,
                    .a_row = width_,
                    .b_row = width_,
                    .c_row = features_},
                   dparts_->data(), Handle(kernel_), 0, dx_->data());
#pragma omp parallel for schedule(static) if (steps_ * examples_ * features_ >= kParallelNumbersMin)
  for (int64_t e = 0; e < examples_; ++e) {
    for (int64_t step = 0; step < steps_; ++step) {
      const float* const from = dx_->data() + (step * examples_ + e) * features_;
      float* const to = dx + (e * steps_ + InputStep(step)) * features_;
      const float* const factors = input_factors_ == nullptr ? nullptr : input_factors_->data() + e * features_;
      for (int64_t i = 0; i < features_; ++i) to[i] += factors == nullptr ? from[i] : from[i] * factors[i];
    }
  }
}

}  // namespace cairn::onednn
