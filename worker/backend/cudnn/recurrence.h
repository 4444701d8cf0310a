// RecurrenceLowering: one recurrence of a recurrent layer (common/model/recurrent.h) as launches. The products with the
// inputs, and the gradients of all weights, are one product for the whole sequence; a step is a product with the state
// and one launch. The products of a ConvLSTM are convolutions (RecurrenceWindows).
//
// Used by one thread, while a plan is built. Invariants:
//   1. Buffers are ordered by step first, in the order in which steps are computed (StepBuffer).
//   2. States and sums are float32; what meets a product is of Builder::type().
#pragma once

#include <memory>
#include <vector>

#include "common/model/recurrent.h"
#include "worker/backend/cudnn/builder.h"
#include "worker/backend/cudnn/kernels/recurrent.h"
#include "worker/backend/cudnn/recurrence_weights.h"
#include "worker/backend/cudnn/recurrence_windows.h"
#include "worker/backend/recurrence_shape.h"

namespace cairn::cudnn {

// A buffer ordered by step first: [steps, examples, numbers].
struct StepBuffer {
  Ref ref;
  int64_t step_bytes = 0;
  // None: there is no such buffer.
  Ref At(int64_t step) const {
    Ref at = ref;
    if (at) at.offset += step * step_bytes;
    return at;
  }
};

class RecurrenceLowering {
 public:
  // mask: of the input's steps, [examples, steps], or none.
  RecurrenceLowering(Builder& builder, const Node& node, const Recurrence& recurrence, Ref mask);

  // h, c: the first states; null: zeros.
  void Forward(const Value& in, const Value* h, const Value* c);
  // What comes back from the outputs: of the state h after each step, or, without return_sequences, after the last one;
  // and with return_cell of c.
  struct StateGradients {
    Ref h, c;
  };
  // in, h, c: the values that Forward read; it writes the gradients of those that need one.
  void Backward(const StateGradients& d, Value* in, Value* h, Value* c);

  // float32 [steps + 1, examples, state_numbers()]; cells: of an LSTM.
  const Ref& states() const { return kept_.h.ref; }
  const Ref& cells() const { return kept_.c.ref; }
  const Recurrence& recurrence() const { return s_.r; }

 private:
  // What forward computes of each step, for backward.
  struct Kept {
    Ref packed;            // the inputs, ordered by step
    StepBuffer parts;      // what the activations are applied to
    StepBuffer h, c;       // the states: [steps + 1, ...]
    StepBuffer states;     // h as it meets the recurrent kernel: with dropout, of Builder::type()
    StepBuffer candidate;  // GRU: h U + b[1] of the third part, or s(r) h
    Ref state_parts;       // GRU: h U, of one step; forward only
  };
  // What backward computes: of all steps, and (h, c, state) of the step at hand.
  struct Gradients {
    StepBuffer parts, state_parts, candidate;
    Ref h, c, state;  // state: of what meets the recurrent kernel
  };
  // What the launches of a step read and write in both passes, and in one of them: the references of
  // kernels::CellStep, CellForwardStep and CellBackwardStep.
  struct StepRefs {
    Ref mask, factors, parts, h, c, c_next, candidate;
    void Bind(const Run& r, kernels::CellStep* s) const;
  };
  struct ForwardRefs : StepRefs {
    Ref bias, state_parts, state_bias, h_next, state_next, reset;
    void Bind(const Run& r, kernels::CellForwardStep* s) const;
  };
  struct BackwardRefs : StepRefs {
    Ref dy, dcell, dstate, dh, dc, dparts, dstate_parts, dreset, dcandidate;
    void Bind(const Run& r, kernels::CellBackwardStep* s) const;
  };

  StepBuffer NewSteps(int64_t steps, int64_t numbers, DType type) const;     // numbers: of an example
  int64_t step_numbers() const { return s_.examples * s_.state_numbers(); }  // of the states of a step
  kernels::Steps Packing() const { return {s_.examples, s_.steps, s_.features, s_.r.go_backwards}; }
  Ref Factors(bool of_state, float rate, int64_t numbers) const;  // of dropout; none: 1
  kernels::CellShape CellShapeOf() const;
  StepRefs RefsOf(int64_t step) const;

  void EmitPack(const Value& in);
  void EmitStart(const Value* from, const Ref& to, const Ref& state, const Ref& factors) const;
  void EmitInputParts();
  void EmitForward(int64_t step) const;
  void EmitCellForward(kernels::Cell cell, ForwardRefs f) const;
  void SetOutputGradients(int64_t step, const StateGradients& d, BackwardRefs* f) const;
  void EmitBackward(int64_t step, const StateGradients& d) const;
  void EmitCellBackward(kernels::Cell cell, BackwardRefs f, bool last) const;
  void EmitFirstGradient(Value* to, const Ref& d, const Ref& dstate, const Ref& factors) const;
  void EmitWeightGradients() const;
  void EmitInputGradient(Value* in) const;

  Builder& b_;
  const int node_;
  const RecurrenceShape s_;
  const Ref mask_;
  const bool trains_;
  RecurrenceWeights weights_;
  const std::unique_ptr<RecurrenceWindows> windows_;  // null: the products are those of matrices
  Ref input_factors_, state_factors_;                 // of dropout; none: 1
  Kept kept_;
  Gradients gradients_;
};

}  // namespace cairn::cudnn
