// RecurrenceRun: one recurrence of a recurrent layer (common/model/recurrent.h), forward and through time backward. The
// products with the inputs, and the gradients of all weights, are one product for the whole sequence; a step has one
// product with the state.
//
// Part of an Op: compiled, then run, on one thread at a time. Buffers are ordered by step first, in the order in which
// steps are computed: [steps, examples, numbers].
#pragma once

#include "absl/types/span.h"
#include "common/model/recurrent.h"
#include "worker/backend/onednn/builder.h"
#include "worker/backend/onednn/plan.h"
#include "worker/backend/onednn/recurrent_cells.h"

namespace cairn::onednn {

class RecurrenceRun {
 public:
  // b.Use of the inputs is the caller's.
  RecurrenceRun(PlanBuilder& b, const Node& node, const Recurrence& recurrence);
  void CompileBackward(PlanBuilder& b);

  // x: [examples, steps, features]. h, c: the first states, [examples, units], or null. step_mask: [examples, steps],
  // or null.
  void Forward(const Run& run, const float* x, const float* h, const float* c, const float* step_mask);
  // dh: of the state behind each step, [steps, examples, units], or, of the last one alone, [examples, units]; it is
  // used up. Writes the variables' gradients; then dh is that of the first state.
  void Backward(const float* step_mask, float* dh_of_steps);
  // dx: [examples, steps, features]; is added to.
  void AddInputGradient(float* dx) const;

  const float* StateBehind(int64_t step) const { return h_->data() + (step + 1) * examples_ * units_; }
  const float* first_state_gradient() const { return dh_->data(); }
  const float* first_cell_gradient() const { return dc_->data(); }
  const Recurrence& recurrence() const { return r_; }
  int64_t InputStep(int64_t step) const { return r_.go_backwards ? steps_ - 1 - step : step; }

 private:
  void ForwardStep(int64_t step, const StepMask& mask);
  void BackwardStep(int64_t step, const StepMask& mask);
  void Pack(const float* x);
  void FillFactors(const Run& run);
  const float* State(int64_t step) const;  // what meets the recurrent kernel: h, dropped
  StepMask MaskOf(const float* step_mask, int64_t step) const;
  float* Parts(Tensor* tensor, int64_t step) const { return tensor->data() + step * examples_ * width_; }
  float* Units(Tensor* tensor, int64_t step) const { return tensor->data() + step * examples_ * units_; }
  float* Raw(int64_t step) const { return raw_ == nullptr ? nullptr : Parts(raw_, step); }
  bool ResetsBefore() const { return r_.cell == RecurrentCell::kGru && !r_.reset_after; }
  bool ResetsAfter() const { return r_.cell == RecurrentCell::kGru && r_.reset_after; }

  const Recurrence r_;
  const int node_;
  const int64_t examples_, steps_, features_, units_, width_;  // width_: of the parts
  CellShape cell_;
  bool trains_ = false, drops_inputs_ = false, drops_states_ = false;
  dnnl::memory kernel_, recurrent_, bias_, kernel_gradient_, recurrent_gradient_, bias_gradient_;
  Tensor* x_ = nullptr;                 // the inputs, dropped
  Tensor* parts_ = nullptr;             // activated
  Tensor* raw_ = nullptr;               // before the activations, where those need it
  Tensor *h_ = nullptr, *c_ = nullptr;  // [steps + 1, ...]
  Tensor* f_c_ = nullptr;               // LSTM: f(c)
  Tensor* dropped_ = nullptr;           // the states that meet the recurrent kernel, where they are not h
  Tensor* reset_ = nullptr;             // GRU: of h U + b[1] the third part, or s(r) h
  Tensor* state_parts_ = nullptr;       // GRU with reset_after: h U + b[1], of one step
  Tensor *input_factors_ = nullptr, *state_factors_ = nullptr;  // dropout
  Tensor *dparts_ = nullptr, *dstate_parts_ = nullptr;
  Tensor *dh_ = nullptr, *dc_ = nullptr, *dreset_ = nullptr, *dstate_ = nullptr;  // of one step
  Tensor* dx_ = nullptr;
};

}  // namespace cairn::onednn
