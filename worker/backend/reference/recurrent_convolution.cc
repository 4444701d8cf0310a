// The products of a ConvLSTM: convolutions of a step of the input and of the state.
#include <vector>

#include "worker/backend/reference/recurrent_walk.h"

namespace cairn::reference {
namespace {

// Of one example: a step of the input, or the state, to the parts.
struct Convolutions {
  Geometry input, state;

  explicit Convolutions(const Walk& w) {
    const RecurrentWindows& windows = w.r.windows;
    Shape state_shape = windows.sides, parts = windows.sides;
    state_shape.push_back(w.r.units);
    parts.push_back(w.gates());
    input = {1, w.step_shape, parts, windows.input};
    state = {1, state_shape, parts, windows.state};
  }
};

// After dropout.
Numbers InputOf(const Walk& w, int64_t step) {
  Numbers x(w.features);
  for (int64_t i = 0; i < w.features; ++i) x[i] = w.Input(step, i);
  return x;
}

Numbers StateOf(const Walk& w, int64_t step) {
  Numbers h(w.states());
  for (int64_t i = 0; i < w.states(); ++i) h[i] = w.State(step, i);
  return h;
}

}  // namespace

void ConvolveStep(const Walk& w, int64_t step, Out parts) {
  const Convolutions of(w);
  Conv2D(of.input, InputOf(w, step), w.kernel, w.bias, parts);
  Numbers from_state(parts.size());
  Conv2D(of.state, StateOf(w, step), w.recurrent_kernel, {}, absl::MakeSpan(from_state));
  for (size_t i = 0; i < parts.size(); ++i) parts[i] += from_state[i];
}

Numbers ConvolveStepBackward(const Walk& w, int64_t step, In d, WalkGradients& g) {
  const Convolutions of(w);
  Numbers dx(w.features, 0.0), dh(w.states(), 0.0);
  Conv2DBackward(of.input, InputOf(w, step), w.kernel, d,
                 {.x = absl::MakeSpan(dx), .kernel = g.kernel, .bias = g.bias});
  Conv2DBackward(of.state, StateOf(w, step), w.recurrent_kernel, d,
                 {.x = absl::MakeSpan(dh), .kernel = g.recurrent_kernel, .bias = {}});
  for (int64_t i = 0; i < w.features; ++i) g.x[w.InputStep(step) * w.features + i] += dx[i] * w.InputFactor(i);
  for (int64_t i = 0; i < w.states(); ++i) dh[i] *= w.StateFactor(i);
  return dh;
}

}  // namespace cairn::reference
