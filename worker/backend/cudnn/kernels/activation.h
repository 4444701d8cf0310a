// The activations of v1::Activation and their derivatives, number by number. The formulas are those of
// worker/backend/reference.
#pragma once

#include <cmath>

#include "worker/backend/cudnn/kernels/launch.h"

namespace cairn::cudnn::kernels {

CAIRN_DEVICE float Sigmoid(float x) {
  const float e = expf(-fabsf(x));
  return (x >= 0 ? 1.0f : e) / (1.0f + e);
}

inline constexpr float kSqrtHalf = 0.70710678118654752f;
inline constexpr float kSqrt2OverPi = 0.79788456080286536f;
inline constexpr float kInverseSqrt2Pi = 0.39894228040143268f;
inline constexpr float kGeluCubic = 0.044715f;
inline constexpr float kSeluAlpha = 1.6732632423543772f, kSeluScale = 1.0507009873554805f;

// log(1 + e^x)
CAIRN_DEVICE float Softplus(float x) { return (x > 0 ? x : 0.0f) + log1pf(expf(-fabsf(x))); }
CAIRN_DEVICE float Clamp(float x, float low, float high) { return x < low ? low : (x > high ? high : x); }

CAIRN_DEVICE float Activate(Act f, float alpha, float x) {
  switch (f) {
    case Act::kRelu: return x < 0 ? 0.0f : x;  // a NaN stays one, so that errors show
    case Act::kLeakyRelu: return x > 0 ? x : alpha * x;
    case Act::kSigmoid: return Sigmoid(x);
    case Act::kTanh: return tanhf(x);
    case Act::kElu: return x > 0 ? x : alpha * expm1f(x);
    case Act::kGelu: return 0.5f * x * (1 + erff(x * kSqrtHalf));
    case Act::kGeluTanh: return 0.5f * x * (1 + tanhf(kSqrt2OverPi * (x + kGeluCubic * x * x * x)));
    case Act::kSilu: return x * Sigmoid(x);
    case Act::kSoftplus: return Softplus(x);
    case Act::kRelu6: return Clamp(x, 0.0f, alpha);
    case Act::kSelu: return kSeluScale * (x > 0 ? x : kSeluAlpha * expm1f(x));
    case Act::kHardSigmoid: return Clamp(alpha * x + 0.5f, 0.0f, 1.0f);
    case Act::kHardSigmoidKeras2: return Clamp(0.2f * x + 0.5f, 0.0f, 1.0f);
    case Act::kHardSilu: return x * Clamp(x / 6 + 0.5f, 0.0f, 1.0f);
    case Act::kExponential: return expf(x);
    case Act::kSoftsign: return x / (1 + fabsf(x));
    case Act::kMish: return x * tanhf(Softplus(x));
    case Act::kLogSigmoid: return -Softplus(-x);
    case Act::kCelu: return x > 0 ? x : alpha * expm1f(x / alpha);
    case Act::kHardTanh: return Clamp(x, -1.0f, 1.0f);
    case Act::kTanhShrink: return x - tanhf(x);
    case Act::kSoftShrink: return x > alpha ? x - alpha : (x < -alpha ? x + alpha : (x == x ? 0.0f : x));
    case Act::kHardShrink: return fabsf(x) <= alpha ? 0.0f : x;
    case Act::kThreshold: return x <= alpha ? 0.0f : x;
    case Act::kSquareplus: return (x + sqrtf(x * x + 4)) / 2;
    case Act::kSparsePlus: return x <= -1 ? 0.0f : (x < 1 ? (x + 1) * (x + 1) / 4 : x);
    case Act::kSparseSigmoid: return Clamp((x + 1) / 2, 0.0f, 1.0f);
    default: return x;
  }
}

// v: the result if TellsDerivative(f), else the argument.
CAIRN_DEVICE float Derivative(Act f, float alpha, float v) {
  switch (f) {
    case Act::kRelu: return v > 0 ? 1.0f : 0.0f;
    case Act::kLeakyRelu: return v > 0 ? 1.0f : alpha;
    case Act::kSigmoid: return v * (1 - v);
    case Act::kTanh: return 1 - v * v;
    case Act::kElu: return v > 0 ? 1.0f : v + alpha;
    case Act::kGelu: return 0.5f * (1 + erff(v * kSqrtHalf)) + v * kInverseSqrt2Pi * expf(-0.5f * v * v);
    case Act::kGeluTanh: {
      const float t = tanhf(kSqrt2OverPi * (v + kGeluCubic * v * v * v));
      return 0.5f * (1 + t) + 0.5f * v * (1 - t * t) * kSqrt2OverPi * (1 + 3 * kGeluCubic * v * v);
    }
    case Act::kSilu: {
      const float s = Sigmoid(v);
      return s * (1 + v * (1 - s));
    }
    case Act::kSoftplus: return Sigmoid(v);
    case Act::kRelu6: return v > 0 && v < alpha ? 1.0f : 0.0f;
    case Act::kSelu: return kSeluScale * (v > 0 ? 1.0f : kSeluAlpha * expf(v));
    case Act::kHardSigmoid: return fabsf(alpha * v) < 0.5f ? alpha : 0.0f;
    case Act::kHardSigmoidKeras2: return fabsf(v) < 2.5f ? 0.2f : 0.0f;
    case Act::kHardSilu: return v <= -3 ? 0.0f : (v < 3 ? v / 3 + 0.5f : 1.0f);
    case Act::kExponential: return expf(v);
    case Act::kSoftsign: return 1 / ((1 + fabsf(v)) * (1 + fabsf(v)));
    case Act::kMish: {
      const float t = tanhf(Softplus(v));
      return t + v * (1 - t * t) * Sigmoid(v);
    }
    case Act::kLogSigmoid: return Sigmoid(-v);
    case Act::kCelu: return v > 0 ? 1.0f : expf(v / alpha);
    case Act::kHardTanh: return fabsf(v) < 1 ? 1.0f : 0.0f;
    case Act::kTanhShrink: return tanhf(v) * tanhf(v);
    case Act::kSoftShrink:
    case Act::kHardShrink: return fabsf(v) > alpha ? 1.0f : 0.0f;
    case Act::kThreshold: return v > alpha ? 1.0f : 0.0f;
    case Act::kSquareplus: return (1 + v / sqrtf(v * v + 4)) / 2;
    case Act::kSparsePlus: return v <= -1 ? 0.0f : (v < 1 ? (v + 1) / 2 : 1.0f);
    case Act::kSparseSigmoid: return fabsf(v) < 1 ? 0.5f : 0.0f;
    default: return 1.0f;
  }
}

}  // namespace cairn::cudnn::kernels
