#include "worker/backend/onednn/recurrent_cells.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "worker/backend/onednn/features.h"
#include "worker/backend/onednn/vector.h"

namespace cairn::onednn {
namespace {

// Cephes' expf: 2^n times a polynomial on [-log(2) / 2, log(2) / 2]. A NaN stays one.
inline float Exp(float x) {
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  constexpr float kWhole = 12582912.0f;  // 1.5 * 2^23: what is added to it is rounded to a whole number
  const float shifted = x * 1.44269504f + kWhole;
  const float n = shifted - kWhole;
  float r = x - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  float y = 1.9875691500e-4f;
  y = y * r + 1.3981999507e-3f;
  y = y * r + 8.3334519073e-3f;
  y = y * r + 4.1665795894e-2f;
  y = y * r + 1.6666665459e-1f;
  y = y * r + 5.0000001201e-1f;
  y = y * (r * r) + r + 1.0f;
  const uint32_t exponent = (std::bit_cast<uint32_t>(shifted) - 0x4B400000u + 127u) << 23;
  return y * std::bit_cast<float>(exponent);
}

inline float SigmoidOf(float x) { return 1.0f / (1.0f + Exp(-x)); }

// Near 0 Cephes' polynomial, else 1 - 2 / (e^2x + 1).
inline float TanhOf(float x) {
  const float a = std::fabs(x);
  const float far = std::copysign(1.0f - 2.0f / (Exp(a + a) + 1.0f), x);
  const float z = x * x;
  float near = -5.70498872745e-3f;
  near = near * z + 2.06390887954e-2f;
  near = near * z - 5.37397155531e-2f;
  near = near * z + 1.33314422036e-1f;
  near = near * z - 3.33332819422e-1f;
  near = near * z * x + x;
  return a < 0.625f ? near : far;
}

CAIRN_VECTOR void SigmoidRow(const float* x, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = SigmoidOf(x[i]);
}
CAIRN_VECTOR void TanhRow(const float* x, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = TanhOf(x[i]);
}
CAIRN_VECTOR void SigmoidSlopeRow(const float* y, float* g, int64_t count) {
  for (int64_t i = 0; i < count; ++i) g[i] = g[i] * (y[i] * (1 - y[i]));
}
CAIRN_VECTOR void TanhSlopeRow(const float* y, float* g, int64_t count) {
  for (int64_t i = 0; i < count; ++i) g[i] = g[i] * (1 - y[i] * y[i]);
}

// The other activations, with the formulas of worker/backend/reference: no model's time depends on these loops.
float ActivateOne(const Activation& f, float x) {
  constexpr float kSqrtHalf = 0.70710678f, kSqrt2OverPi = 0.79788456f, kGeluCubic = 0.044715f;
  switch (f.kind) {
    case v1::RELU: return x < 0 ? 0.0f : x;
    case v1::LEAKY_RELU: return x > 0 ? x : f.alpha * x;
    case v1::ELU: return x > 0 ? x : f.alpha * std::expm1(x);
    case v1::GELU: return 0.5f * x * (1 + std::erf(x * kSqrtHalf));
    case v1::GELU_TANH: return 0.5f * x * (1 + std::tanh(kSqrt2OverPi * (x + kGeluCubic * x * x * x)));
    case v1::SILU: return x * SigmoidOf(x);
    case v1::SOFTPLUS: return std::max(x, 0.0f) + std::log1p(std::exp(-std::fabs(x)));
    case v1::RELU6: return x < 0 ? 0.0f : (x > 6 ? 6.0f : x);
    default: return x;
  }
}

float SlopeOne(const Activation& f, float x, float y) {
  constexpr float kSqrtHalf = 0.70710678f, kSqrt2OverPi = 0.79788456f, kGeluCubic = 0.044715f;
  constexpr float kInverseSqrt2Pi = 0.39894228f;
  switch (f.kind) {
    case v1::RELU: return y > 0 ? 1.0f : 0.0f;
    case v1::LEAKY_RELU: return y > 0 ? 1.0f : f.alpha;
    case v1::ELU: return y > 0 ? 1.0f : y + f.alpha;
    case v1::GELU: return 0.5f * (1 + std::erf(x * kSqrtHalf)) + x * kInverseSqrt2Pi * std::exp(-0.5f * x * x);
    case v1::GELU_TANH: {
      const float t = std::tanh(kSqrt2OverPi * (x + kGeluCubic * x * x * x));
      return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * kSqrt2OverPi * (1 + 3 * kGeluCubic * x * x);
    }
    case v1::SILU: {
      const float s = SigmoidOf(x);
      return s * (1 + x * (1 - s));
    }
    case v1::SOFTPLUS: return SigmoidOf(x);
    case v1::RELU6: return y > 0 && y < 6 ? 1.0f : 0.0f;
    default: return 1.0f;
  }
}

CAIRN_VECTOR void LstmStateRow(const float* i, const float* f, const float* g, const float* c, float* __restrict c_next,
                               int64_t units) {
  for (int64_t u = 0; u < units; ++u) c_next[u] = f[u] * c[u] + i[u] * g[u];
}
CAIRN_VECTOR void ProductRow(const float* x, const float* y, float* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = x[i] * y[i];
}
// to = z h + (1 - z) a
CAIRN_VECTOR void MixRow(const float* z, const float* h, const float* a, float* __restrict to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = z[i] * h[i] + (1 - z[i]) * a[i];
}
CAIRN_VECTOR void SumRow(const float* x, float* __restrict y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] += x[i];
}
CAIRN_VECTOR void SumOfProductRow(const float* x, const float* y, float* __restrict to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] += x[i] * y[i];
}
// parts: the row's i, f and g, one after the other; dparts: their gradients. A loop for each of these: one for all has
// too many places that might overlap, and would not be vectorized.
CAIRN_VECTOR void LstmGradientRow(const float* parts, const float* c, const float* __restrict through_c,
                                  float* __restrict dc, float* __restrict dparts, int64_t units) {
  const float *const i = parts, *const f = parts + units, *const g = parts + 2 * units;
  for (int64_t u = 0; u < units; ++u) dparts[u] = (dc[u] + through_c[u]) * g[u];
  for (int64_t u = 0; u < units; ++u) dparts[units + u] = (dc[u] + through_c[u]) * c[u];
  for (int64_t u = 0; u < units; ++u) dparts[2 * units + u] = (dc[u] + through_c[u]) * i[u];
  for (int64_t u = 0; u < units; ++u) dc[u] = (dc[u] + through_c[u]) * f[u];
}
// parts: the row's z, r and a; dparts: their gradients. dz = dh (h - a), da = dh (1 - z), dh = dh z
CAIRN_VECTOR void GruGradientRow(const float* parts, const float* h, float* __restrict dh, float* dparts,
                                 int64_t units) {
  const float *const z = parts, *const a = parts + 2 * units;
  float* const __restrict dz = dparts;
  float* const __restrict da = dparts + 2 * units;
  for (int64_t u = 0; u < units; ++u) {
    dz[u] = dh[u] * (h[u] - a[u]);
    da[u] = dh[u] * (1 - z[u]);
    dh[u] = dh[u] * z[u];
  }
}

// In parallel if it is worth waking other threads.
template <typename Fn>
void ForEachRow(const CellShape& s, Fn fn) {
#pragma omp parallel for schedule(static) if (s.rows * s.units >= kParallelNumbersMin / 8)
  for (int64_t e = 0; e < s.rows; ++e) fn(e);
}

void Keep(const float* parts, float* raw, int64_t count) {
  if (raw != nullptr) std::memcpy(raw, parts, count * sizeof(float));
}
void Zero(float* to, int64_t count) { std::memset(to, 0, count * sizeof(float)); }
const float* At(const float* raw, int64_t place) { return raw == nullptr ? nullptr : raw + place; }

}  // namespace

void ActivateRow(const Activation& f, const float* x, float* y, int64_t count) {
  if (f.kind == v1::SIGMOID) return SigmoidRow(x, y, count);
  if (f.kind == v1::TANH) return TanhRow(x, y, count);
  if (f.further()) return FurtherActivationRow(f, x, y, count);
  for (int64_t i = 0; i < count; ++i) y[i] = ActivateOne(f, x[i]);
}

void SlopeRow(const Activation& f, const float* x, const float* y, float* g, int64_t count) {
  if (f.kind == v1::SIGMOID) return SigmoidSlopeRow(y, g, count);
  if (f.kind == v1::TANH) return TanhSlopeRow(y, g, count);
  if (f.linear()) return;
  if (f.further()) return FurtherSlopeRow(f, x, g, count);
  for (int64_t i = 0; i < count; ++i) g[i] = g[i] * SlopeOne(f, f.needs_input() ? x[i] : 0, y[i]);
}

void SimpleForward(const CellShape& s, const StepMask& mask, float* parts, float* raw, const float* h, float* h_next) {
  const int64_t units = s.units;
  ForEachRow(s, [&](int64_t e) {
    float* const p = parts + e * units;
    if (raw != nullptr) Keep(p, raw + e * units, units);
    ActivateRow(s.f, p, p, units);
    std::memcpy(h_next + e * units, mask.Counts(e) ? p : h + e * units, units * sizeof(float));
  });
}

void SimpleBackward(const CellShape& s, const StepMask& mask, const float* parts, const float* raw, float* dh,
                    float* dparts) {
  const int64_t units = s.units;
  ForEachRow(s, [&](int64_t e) {
    float* const d = dparts + e * units;
    if (!mask.Counts(e)) return Zero(d, units);
    std::memcpy(d, dh + e * units, units * sizeof(float));
    SlopeRow(s.f, At(raw, e * units), parts + e * units, d, units);
    Zero(dh + e * units, units);
  });
}

void LstmForward(const CellShape& s, const StepMask& mask, float* parts, float* raw, const LstmStates& states) {
  const int64_t units = s.units;
  const float *const h = states.h, *const c = states.c;
  float *const h_next = states.h_next, *const c_next = states.c_next, *const f_c = states.f_c;
  ForEachRow(s, [&](int64_t e) {
    float* const p = parts + e * 4 * units;
    const int64_t row = e * units;
    if (raw != nullptr) Keep(p, raw + e * 4 * units, 4 * units);
    if (!mask.Counts(e)) {
      std::memcpy(h_next + row, h + row, units * sizeof(float));
      std::memcpy(c_next + row, c + row, units * sizeof(float));
      return;
    }
    ActivateRow(s.gate, p, p, 2 * units);
    ActivateRow(s.f, p + 2 * units, p + 2 * units, units);
    ActivateRow(s.gate, p + 3 * units, p + 3 * units, units);
    LstmStateRow(p, p + units, p + 2 * units, c + row, c_next + row, units);
    ActivateRow(s.f, c_next + row, f_c + row, units);
    ProductRow(p + 3 * units, f_c + row, h_next + row, units);
  });
}

void LstmBackward(const CellShape& s, const StepMask& mask, const float* parts, const float* raw,
                  const LstmStates& states, const LstmGradients& to) {
  const int64_t units = s.units;
  const float *const c = states.c, *const c_next = states.c_next, *const f_c = states.f_c;
  float *const dh = to.h, *const dc = to.c, *const dparts = to.parts;
  ForEachRow(s, [&](int64_t e) {
    const float* const p = parts + e * 4 * units;
    const float* const before = At(raw, e * 4 * units);
    float* const d = dparts + e * 4 * units;
    const int64_t row = e * units;
    if (!mask.Counts(e)) return Zero(d, 4 * units);
    ProductRow(dh + row, f_c + row, d + 3 * units, units);
    ProductRow(dh + row, p + 3 * units, dh + row, units);  // through c now
    SlopeRow(s.f, c_next + row, f_c + row, dh + row, units);
    LstmGradientRow(p, c + row, dh + row, dc + row, d, units);
    SlopeRow(s.gate, before, p, d, 2 * units);
    SlopeRow(s.f, At(before, 2 * units), p + 2 * units, d + 2 * units, units);
    SlopeRow(s.gate, At(before, 3 * units), p + 3 * units, d + 3 * units, units);
    Zero(dh + row, units);
  });
}

void GruAfterForward(const CellShape& s, const StepMask& mask, float* parts, float* raw, const GruStates& states) {
  const int64_t units = s.units;
  const float *const h = states.h, *const state_parts = states.state_parts;
  float *const candidate = states.candidate, *const h_next = states.h_next;
  ForEachRow(s, [&](int64_t e) {
    float* const p = parts + e * 3 * units;
    const float* const state = state_parts + e * 3 * units;
    const int64_t row = e * units;
    SumRow(state, p, 2 * units);
    if (raw != nullptr) Keep(p, raw + e * 3 * units, 2 * units);
    ActivateRow(s.gate, p, p, 2 * units);
    std::memcpy(candidate + row, state + 2 * units, units * sizeof(float));
    SumOfProductRow(p + units, candidate + row, p + 2 * units, units);
    if (raw != nullptr) Keep(p + 2 * units, raw + (e * 3 + 2) * units, units);
    ActivateRow(s.f, p + 2 * units, p + 2 * units, units);
    if (!mask.Counts(e)) {
      std::memcpy(h_next + row, h + row, units * sizeof(float));
      return;
    }
    MixRow(p, h + row, p + 2 * units, h_next + row, units);
  });
}

void GruAfterBackward(const CellShape& s, const StepMask& mask, const float* parts, const float* raw,
                      const GruStates& states, const GruGradients& to) {
  const int64_t units = s.units;
  const float *const h = states.h, *const candidate = states.candidate;
  float *const dh = to.h, *const dparts = to.parts, *const dstate_parts = to.state_parts;
  ForEachRow(s, [&](int64_t e) {
    const float* const p = parts + e * 3 * units;
    const float* const before = At(raw, e * 3 * units);
    float *const d = dparts + e * 3 * units, *const ds = dstate_parts + e * 3 * units;
    const int64_t row = e * units;
    if (!mask.Counts(e)) {
      Zero(d, 3 * units);
      return Zero(ds, 3 * units);
    }
    GruGradientRow(p, h + row, dh + row, d, units);
    SlopeRow(s.f, At(before, 2 * units), p + 2 * units, d + 2 * units, units);
    ProductRow(d + 2 * units, candidate + row, d + units, units);
    SlopeRow(s.gate, before, p, d, 2 * units);
    std::memcpy(ds, d, 2 * units * sizeof(float));
    ProductRow(d + 2 * units, p + units, ds + 2 * units, units);
  });
}

void GruGatesForward(const CellShape& s, float* parts, float* raw, const float* state, float* reset) {
  const int64_t units = s.units;
  ForEachRow(s, [&](int64_t e) {
    float* const p = parts + e * 3 * units;
    if (raw != nullptr) Keep(p, raw + e * 3 * units, 2 * units);
    ActivateRow(s.gate, p, p, 2 * units);
    ProductRow(p + units, state + e * units, reset + e * units, units);
  });
}

void GruCandidateForward(const CellShape& s, const StepMask& mask, float* parts, float* raw, const float* h,
                         float* h_next) {
  const int64_t units = s.units;
  ForEachRow(s, [&](int64_t e) {
    float* const p = parts + e * 3 * units;
    const int64_t row = e * units;
    if (raw != nullptr) Keep(p + 2 * units, raw + (e * 3 + 2) * units, units);
    ActivateRow(s.f, p + 2 * units, p + 2 * units, units);
    if (!mask.Counts(e)) {
      std::memcpy(h_next + row, h + row, units * sizeof(float));
      return;
    }
    MixRow(p, h + row, p + 2 * units, h_next + row, units);
  });
}

void GruCandidateBackward(const CellShape& s, const StepMask& mask, const float* parts, const float* raw,
                          const float* h, const GruGradients& to) {
  const int64_t units = s.units;
  float *const dh = to.h, *const dparts = to.parts;
  ForEachRow(s, [&](int64_t e) {
    const float* const p = parts + e * 3 * units;
    float* const d = dparts + e * 3 * units;
    const int64_t row = e * units;
    if (!mask.Counts(e)) return Zero(d, 3 * units);
    GruGradientRow(p, h + row, dh + row, d, units);
    SlopeRow(s.gate, At(raw, e * 3 * units), p, d, units);
    SlopeRow(s.f, At(raw, (e * 3 + 2) * units), p + 2 * units, d + 2 * units, units);
  });
}

void GruGatesBackward(const CellShape& s, const float* parts, const float* raw, const float* state, float* dreset,
                      float* dparts) {
  const int64_t units = s.units;
  ForEachRow(s, [&](int64_t e) {
    const float* const r = parts + (e * 3 + 1) * units;
    float* const d = dparts + (e * 3 + 1) * units;
    float* const reset = dreset + e * units;
    ProductRow(reset, state + e * units, d, units);
    SlopeRow(s.gate, At(raw, (e * 3 + 1) * units), r, d, units);
    ProductRow(reset, r, reset, units);
  });
}

}  // namespace cairn::onednn
