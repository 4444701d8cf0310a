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
  float beta_1, beta_2;  // Adamax, Lion
  NadamCoefficients nadam;
  FtrlCoefficients ftrl;
  float weight_decay;
  AverageCoefficients average;
};

// In: w, the old values; io, the sum of gradients. Out: io, the new values; the slots.
void Adadelta(const float* w, float* io, float* grads, float* deltas, int64_t n, Coefficients c);
void Adamax(const float* w, float* io, float* m, float* u, int64_t n, Coefficients c);
void Nadam(const float* w, float* io, float* m, float* v, int64_t n, Coefficients c);
void Ftrl(const float* w, float* io, float* accumulator, float* linear, int64_t n, Coefficients c);
void Lion(const float* w, float* io, float* m, int64_t n, Coefficients c);

}  // namespace cairn
