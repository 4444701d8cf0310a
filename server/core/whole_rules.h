// The optimizers whose update of a number depends on its whole variable: Lamb, Adafactor, Muon.
//
// Formulas and defaults are those of keras.optimizers (Keras 3), in float32, with sums in float64. With g the mean
// gradient, t the step, w the values after weight decay, |x| = sqrt(sum of x^2), rms(x) = sqrt(mean of x^2):
//   Lamb       m = m + (g - m) * (1 - beta_1);  v = v + (g^2 - v) * (1 - beta_2)
//              u = m / (1 - beta_1^t) / (sqrt(v / (1 - beta_2^t)) + epsilon)
//              w - |w| / |u| * lr * u    with 1 for |w| / |u| where one of the two is 0
//   Adafactor  q = g^2 + epsilon_1;  b = 1 - t^beta_2_decay
//              a variable of less than two axes:  v = b * v + (1 - b) * q
//              another one, of its last two axes: r = b * r + (1 - b) * mean of q's rows;  c the same of its columns
//                                                 v = r / (mean of r) * c
//              u = g / sqrt(v);  u = u / max(1, rms(u) / clip_threshold)
//              w - max(epsilon_2, rms(w)) * min(lr, 1 / sqrt(t)) * u
//   Muon       m = m * momentum + g;  u = nesterov ? g + m * momentum : m
//              w - lr * NewtonSchulz(u) * sqrt(the longer side) * rms_rate    (server/core/newton_schulz.h)
//
// Pure functions; any thread. Invariants:
//   1. The old values are left as they are; the new ones are written over the gradient.
//   2. Sums run in a fixed order, and no operation is fused: the bits are equal on every x86-64. A variable lies in one
//      partition, so that partitioning changes no bit.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "server/core/optimizer.h"
#include "server/core/optimizer_loops.h"

namespace cairn {

struct WholeVariable {
  const float* w = nullptr;  // the old values, before weight decay
  float* io = nullptr;       // in: the sum of gradients; out: the new values
  std::vector<float*> slots;
  int64_t n = 0;
  absl::Span<const int64_t> shape;
};

// c.weight_decay is the variable's; t: Update.step.
void ApplyWholeRule(const OptimizerRule& rule, const Coefficients& c, uint64_t t, const WholeVariable& v);

}  // namespace cairn
