// RecurrenceRun: one recurrence of a recurrent layer (common/model/recurrent.h), forward and through time backward. The
// products with the inputs, and the gradients of all weights, are one product for the whole sequence, of a ConvLSTM one
// for each step; a step has one product with the state.
//
// Part of an Op: compiled, then run, on one thread at a time. Invariants:
//   1. Buffers are ordered by step first, in the order in which steps are computed (StepBuffer).
//   2. A step reads the states before it and writes those behind it; backward goes the same way back.
#pragma once

#include "common/model/recurrent.h"
#include "worker/backend/onednn/bound_variable.h"
#include "worker/backend/onednn/builder.h"
#include "worker/backend/onednn/plan.h"
#include "worker/backend/onednn/recurrence_parts.h"
#include "worker/backend/onednn/recurrent_cells.h"
#include "worker/backend/recurrence_shape.h"

namespace cairn::onednn {

class RecurrenceRun {
 public:
  // The caller calls b.Use for the inputs.
  RecurrenceRun(PlanBuilder& b, const Node& node, const Recurrence& recurrence);
  void CompileBackward(PlanBuilder& b);

  // x: [examples, steps, features]. h, c: the first states, [examples, state numbers]; null: zeros. step_mask:
  // [examples, steps]; null: every step counts.
  void Forward(const Run& run, const float* x, const float* h, const float* c, const float* step_mask);
  // dh_of_steps: the gradient of the state behind each step, [steps, examples, state numbers], or, without
  // return_sequences, of the last one; its contents are lost. dc_of_steps: the same of c; null: zeros. Writes the
  // gradients of the variables.
  void Backward(const float* step_mask, float* dh_of_steps, const float* dc_of_steps);
  // After Backward: adds the gradient of the input to dx, [examples, steps, features].
  void AddInputGradient(float* dx) const;

  const float* StateBehind(int64_t step) const { return states_.At(step + 1); }
  const float* CellBehind(int64_t step) const { return activations_.c.At(step + 1); }  // of an LSTM
  const float* first_state_gradient() const { return gradients_.h.data(); }
  const float* first_cell_gradient() const { return gradients_.c.data(); }
  int64_t InputStep(int64_t step) const { return s_.InputStep(step); }

 private:
  // What forward computes besides the states; backward reads it.
  struct Activations {
    StepBuffer parts;     // after the activations
    StepBuffer raw;       // before the activations, where those need it
    StepBuffer c, f_c;    // LSTM: [steps + 1, ...]; f(c) behind each step
    StepBuffer reset;     // GRU: of h U + b[1] the third part, or s(r) h
    StepBuffer of_state;  // GRU with reset_after: h U + b[1], of one step; forward only
  };
  // The gradients that backward computes. Those of one step become those of the step before it.
  struct Gradients {
    StepBuffer parts, of_state;       // of all steps
    StepBuffer h, c, reset, dropped;  // of one step; dropped: of what meets the recurrent kernel
  };

  void ForwardStep(int64_t step, const StepMask& mask);
  void ForwardGru(int64_t step, const StepMask& mask);
  LstmStates LstmStatesOf(int64_t step) const;
  void BackwardStep(int64_t step, const StepMask& mask);
  void ComputeWeightGradients() const;
  StepMask MaskOf(const float* step_mask, int64_t step) const;

  const RecurrenceShape s_;
  const CellShape cell_;
  const BoundVariable kernel_, recurrent_, bias_;
  PackedInput input_;
  const States states_;
  const ProductRows input_rows_, state_rows_;
  Activations activations_;
  Gradients gradients_;
};

}  // namespace cairn::onednn
