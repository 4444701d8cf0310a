// Walk: one recurrence on one example, step by step (common/model/recurrent.h has the formulas).
//
// Used by one thread. Invariant: steps are numbered in the order in which they are computed.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/model/recurrent.h"
#include "worker/backend/reference/reference_ops.h"

namespace cairn::reference {

using Numbers = std::vector<double>;

// What the way back needs is kept.
struct Walk {
  const Recurrence& r;
  Shape step_shape;                 // of a step of the input
  int64_t steps = 0, features = 0;  // features: the numbers of a step
  In x, kernel, recurrent_kernel, bias;
  absl::Span<const float> step_mask, input_factors, state_factors;  // of the example; empty: all 1
  Numbers h, c;       // [steps + 1, states()]: the state before each step, and the last one
  Numbers parts;      // [steps, positions, gates()]: before the activations
  Numbers candidate;  // [steps, units]: GRU with reset_after: h U + b[1] of the third part

  int64_t gates() const { return r.gates() * r.units; }
  int64_t states() const { return r.state_numbers(); }
  int64_t width() const { return r.windows.positions() * gates(); }  // of the parts of a step
  // Where part `which` of number i of the state stands among the parts of a step.
  int64_t PartOf(int64_t which, int64_t i) const { return i / r.units * gates() + which * r.units + i % r.units; }
  int64_t InputStep(int64_t step) const { return r.go_backwards ? steps - 1 - step : step; }
  bool Counts(int64_t step) const { return step_mask.empty() || step_mask[InputStep(step)] != 0; }
  double InputFactor(int64_t i) const { return input_factors.empty() ? 1.0 : input_factors[i]; }
  double Input(int64_t step, int64_t i) const { return x[InputStep(step) * features + i] * InputFactor(i); }
  double StateFactor(int64_t i) const { return state_factors.empty() ? 1.0 : state_factors[i]; }
  // The state that meets the recurrent kernel.
  double State(int64_t step, int64_t i) const { return h[step * states() + i] * StateFactor(i); }
  double U(int64_t i, int64_t part) const { return recurrent_kernel[i * gates() + part]; }
};

struct WalkGradients {
  Out x, kernel, recurrent_kernel, bias;  // added to
  Numbers h, c;                           // of the state behind the step at hand; then of that before it
};

void ForwardStep(Walk& w, int64_t step);
void BackwardStep(const Walk& w, int64_t step, WalkGradients& g);

// recurrent_convolution.cc: the products of a ConvLSTM.
// parts: takes x W + b + h U of the step.
void ConvolveStep(const Walk& w, int64_t step, Out parts);
// d: of the parts. Adds to the gradients of the input and the variables. Returns that of the state before the step.
Numbers ConvolveStepBackward(const Walk& w, int64_t step, In d, WalkGradients& g);

}  // namespace cairn::reference
