// The loops of the optimizers that are not in optimizer.cc: one pass over values, gradient and slots each.
//
// Pure functions; any thread. As there: element i depends on element i alone, no operation is fused or reordered.
#pragma once

#include <cstdint>

namespace cairn {

struct NadamCoefficients {
  float m, g;                  // factors of m and g
  float one_minus_beta_2_pow;  // 1 - beta_2^t
};

struct FtrlCoefficients {
  float l1, l2, shrinkage;  // l2 with beta / (2 lr), then twice
  int power;                // of the accumulator: 0, 1 for its root, 2 for itself
};

struct ScheduleFreeCoefficients {
  float rate;                  // the learning rate, warmed up
  float one_minus_beta_2_pow;  // 1 - beta_2^t
  float weight;                // 1 / t
  float one_minus_weight;
};

// What only one of the rules has.
struct OwnCoefficients {
  NadamCoefficients nadam;
  FtrlCoefficients ftrl;
  ScheduleFreeCoefficients schedule_free;
};

// Of the moving average of the values.
struct AverageCoefficients {
  float momentum, one_minus_momentum;
};

// Of one update, in float32. `g` in the formulas is the mean gradient io[i] / examples; w are the old values; what is
// written to io are the new ones.
struct Coefficients {
  float examples;
  float learning_rate;
  float momentum;
  float rho, one_minus_rho;
  float one_minus_beta_1, one_minus_beta_2;
  float alpha;  // Adam: learning_rate * sqrt(1 - beta_2^t) / (1 - beta_1^t); Adamax: learning_rate / (1 - beta_1^t)
  float epsilon;
  float beta_1, beta_2;  // Adamax, Lion, ScheduleFree
  OwnCoefficients own;
  float weight_decay;
  AverageCoefficients average;
};

// In: w, the old values; io, the sum of gradients. Out: io, the new values; the slots.
void Adadelta(const float* w, float* io, float* grads, float* deltas, int64_t n, Coefficients c);
void Adamax(const float* w, float* io, float* m, float* u, int64_t n, Coefficients c);
void Nadam(const float* w, float* io, float* m, float* v, int64_t n, Coefficients c);
void Ftrl(const float* w, float* io, float* accumulator, float* linear, int64_t n, Coefficients c);
void Lion(const float* w, float* io, float* m, int64_t n, Coefficients c);
void ScheduleFree(const float* w, float* io, float* z, float* v, int64_t n, Coefficients c);

// The loops around every rule. ClipMean: mean = clip(io / examples, -clipvalue, clipvalue), stored in io; keeps NaN.
// Decay: out = w - w * weight_decay * lr. Average: a = momentum * a + (1 - momentum) * w.
void ClipMean(float* io, int64_t n, float examples, float clipvalue);
void Decay(const float* w, float* out, int64_t n, Coefficients c);
void Average(const float* w, float* a, int64_t n, Coefficients c);

}  // namespace cairn
