// RecurrenceLowering: one recurrence of a recurrent layer (common/model/recurrent.h) as launches. The products with the
// inputs, and the gradients of all weights, are one product for the whole sequence; a step is a product with the state
// and one launch.
//
// Buffers are ordered by step first, in the order in which steps are computed: [steps, examples, numbers]. Used by one
// thread, while a plan is built.
#pragma once

#include <string>
#include <vector>

#include "common/model/recurrent.h"
#include "worker/backend/cudnn/builder.h"
#include "worker/backend/cudnn/kernels/recurrent.h"

namespace cairn::cudnn {

class RecurrenceLowering {
 public:
  // mask: of the input's steps, [examples, steps], or none.
  RecurrenceLowering(Builder& builder, const Node& node, const Recurrence& recurrence, Ref mask);

  // h, c: where the first states are, or null.
  void Forward(const Value& in, const Value* h, const Value* c);
  // d: of the states behind the steps, or, of the last one alone. h, c: whose gradients the first states' are, or null.
  void Backward(const Ref& d, Value* in, Value* h, Value* c);

  const Ref& states() const { return h_; }  // float32 [steps + 1, examples, units]
  const Recurrence& recurrence() const { return r_; }

 private:
  // What a step's launches read and write.
  struct StepRefs {
    Ref mask, factors, parts, bias, state_parts, state_bias, h, c, h_next, c_next, state_next, candidate, reset;
    Ref dy, dstate, dh, dc, dparts, dstate_parts, dreset, dcandidate;
  };
  bool ResetsBefore() const { return r_.cell == RecurrentCell::kGru && !r_.reset_after; }
  bool ResetsAfter() const { return r_.cell == RecurrentCell::kGru && r_.reset_after; }
  Ref At(const Ref& ref, int64_t step, int64_t numbers, DType type) const;  // of `numbers` for each example and step
  kernels::Steps Packing() const { return {n_, steps_, features_, r_.go_backwards}; }
  Ref InType(const Ref& weights, int64_t numbers) const;
  Ref Piece(const Ref& all, int64_t begin, int64_t width) const;  // columns of the recurrent kernel
  Ref Factors(bool of_state, float rate, int64_t numbers) const;  // of dropout; none: 1
  void PrepareWeights();
  void EmitStart(const Value* from, const Ref& to, const Ref& state, const Ref& factors) const;
  void EmitFirstGradient(Value* to, const Ref& d, const Ref& dstate, const Ref& factors) const;
  static void Bind(const StepRefs& f, const Run& r, kernels::CellStep* s);
  kernels::CellStep Fixed() const;
  StepRefs CommonRefs(int64_t step) const;
  void EmitForward(int64_t step) const;
  void EmitCellForward(kernels::Cell cell, StepRefs f) const;
  void EmitBackward(int64_t step, const Ref& d) const;
  void EmitCellBackward(kernels::Cell cell, StepRefs f, bool last) const;
  void EmitWeightGradients() const;
  void PutPiece(const Product& product, const Ref& a, const Ref& b, const Ref& gradient, int64_t begin) const;

  Builder& b_;
  const int node_;
  const Recurrence r_;
  const DType t_;
  const int64_t n_, steps_, features_, units_, width_;
  const Ref mask_;
  const bool trains_;
  const Variable *kernel_ = nullptr, *recurrent_ = nullptr, *bias_ = nullptr;
  Ref input_factors_, state_factors_, packed_, input_weights_, weights_, candidate_weights_;
  Ref parts_, h_, c_, states_, state_parts_;
  Ref candidate_;  // GRU: h U + b[1] of the third part, or s(r) h
  Ref dparts_, dstate_parts_, dcandidate_, dh_, dc_, dstate_;
};

}  // namespace cairn::cudnn
