#include "server/core/optimizer_loops.h"

#include <cmath>

#include "common/tensor/vectorize.h"

namespace cairn {
namespace {

// a^(power / 2).
inline float HalfPower(float a, int power) { return power == 0 ? 1.0f : power == 1 ? std::sqrt(a) : a; }

}  // namespace

// a = rho * a + (1 - rho) * g^2;  d = sqrt(x + epsilon) * g / sqrt(a + epsilon);  x = rho * x + (1 - rho) * d^2;
// w - lr * d
CAIRN_VECTORIZED void Adadelta(const float* __restrict w, float* __restrict io, float* __restrict a,
                               float* __restrict x, int64_t n, Coefficients c) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = io[i] / c.examples;
    a[i] = c.rho * a[i] + c.one_minus_rho * (g * g);
    const float d = std::sqrt(x[i] + c.epsilon) * g / std::sqrt(a[i] + c.epsilon);
    x[i] = c.rho * x[i] + c.one_minus_rho * (d * d);
    io[i] = w[i] - c.learning_rate * d;
  }
}

// m = m + (g - m) * (1 - beta_1);  u = max(beta_2 * u, |g|);  w - m * alpha / (u + epsilon)
CAIRN_VECTORIZED void Adamax(const float* __restrict w, float* __restrict io, float* __restrict m, float* __restrict u,
                             int64_t n, Coefficients c) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = io[i] / c.examples;
    m[i] = m[i] + (g - m[i]) * c.one_minus_beta_1;
    const float faded = c.beta_2 * u[i], size = std::fabs(g);
    u[i] = faded > size ? faded : size;
    io[i] = w[i] - m[i] * c.alpha / (u[i] + c.epsilon);
  }
}

// m, v as Adam's;  h = m * nadam.m + g * nadam.g;  w - h * lr / (sqrt(v / (1 - beta_2^t)) + epsilon)
CAIRN_VECTORIZED void Nadam(const float* __restrict w, float* __restrict io, float* __restrict m, float* __restrict v,
                            int64_t n, Coefficients c) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = io[i] / c.examples;
    m[i] = m[i] + (g - m[i]) * c.one_minus_beta_1;
    v[i] = v[i] + (g * g - v[i]) * c.one_minus_beta_2;
    const float h = m[i] * c.own.nadam.m + g * c.own.nadam.g;
    io[i] = w[i] - h * c.learning_rate / (std::sqrt(v[i] / c.own.nadam.one_minus_beta_2_pow) + c.epsilon);
  }
}

// b = a + g^2;  p(x) = x^-learning_rate_power;  l = l + (g + 2 * shrinkage * w) - (p(b) - p(a)) / lr * w;  a = b;
// (clip(l, -l1, l1) - l) / (p(a) / lr + 2 * l2)
CAIRN_VECTORIZED void Ftrl(const float* __restrict w, float* __restrict io, float* __restrict a, float* __restrict l,
                           int64_t n, Coefficients c) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = io[i] / c.examples;
    const float next = a[i] + g * g;
    const float after = HalfPower(next, c.own.ftrl.power), before = HalfPower(a[i], c.own.ftrl.power);
    l[i] = l[i] + (g + c.own.ftrl.shrinkage * w[i]) - (after - before) / c.learning_rate * w[i];
    a[i] = next;
    const float clipped = l[i] < -c.own.ftrl.l1 ? -c.own.ftrl.l1 : l[i] > c.own.ftrl.l1 ? c.own.ftrl.l1 : l[i];
    io[i] = (clipped - l[i]) / (after / c.learning_rate + c.own.ftrl.l2);
  }
}

// w - lr * sign(beta_1 * m + (1 - beta_1) * g);  m = beta_2 * m + (1 - beta_2) * g
CAIRN_VECTORIZED void Lion(const float* __restrict w, float* __restrict io, float* __restrict m, int64_t n,
                           Coefficients c) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = io[i] / c.examples;
    const float to = c.beta_1 * m[i] + c.one_minus_beta_1 * g;
    const float sign = to > 0 ? 1.0f : to < 0 ? -1.0f : to;
    m[i] = c.beta_2 * m[i] + c.one_minus_beta_2 * g;
    io[i] = w[i] - c.learning_rate * sign;
  }
}

// v = v + (g^2 - v) * (1 - beta_2);  z' = z - rate * g / (sqrt(v / (1 - beta_2^t)) + epsilon)
// x = (1 - 1/t) * (w - (1 - beta_1) * z) / beta_1 + 1/t * z';  (1 - beta_1) * z' + beta_1 * x
CAIRN_VECTORIZED void ScheduleFree(const float* __restrict w, float* __restrict io, float* __restrict z,
                                   float* __restrict v, int64_t n, Coefficients c) {
  const ScheduleFreeCoefficients own = c.own.schedule_free;
  for (int64_t i = 0; i < n; ++i) {
    const float g = io[i] / c.examples;
    v[i] = v[i] + (g * g - v[i]) * c.one_minus_beta_2;
    const float average = (w[i] - c.one_minus_beta_1 * z[i]) / c.beta_1;
    z[i] = z[i] - own.rate * g / (std::sqrt(v[i] / own.one_minus_beta_2_pow) + c.epsilon);
    io[i] = c.one_minus_beta_1 * z[i] + c.beta_1 * (own.one_minus_weight * average + own.weight * z[i]);
  }
}

CAIRN_VECTORIZED void ClipMean(float* __restrict io, int64_t n, float examples, float clipvalue) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = io[i] / examples;
    io[i] = g < -clipvalue ? -clipvalue : g > clipvalue ? clipvalue : g;
  }
}

CAIRN_VECTORIZED void Decay(const float* __restrict w, float* __restrict out, int64_t n, Coefficients c) {
  for (int64_t i = 0; i < n; ++i) out[i] = w[i] - w[i] * c.weight_decay * c.learning_rate;
}

CAIRN_VECTORIZED void Average(const float* __restrict w, float* __restrict a, int64_t n, Coefficients c) {
  for (int64_t i = 0; i < n; ++i) a[i] = c.average.momentum * a[i] + c.average.one_minus_momentum * w[i];
}

}  // namespace cairn
