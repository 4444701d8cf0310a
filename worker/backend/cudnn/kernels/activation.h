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
    case Act::kSoftplus: return (x > 0 ? x : 0.0f) + log1pf(expf(-fabsf(x)));
    case Act::kRelu6: return x < 0 ? 0.0f : (x > 6 ? 6.0f : x);
    default: return x;
  }
}

// Whether the derivative can be computed from the result.
inline bool TellsDerivative(Act f) {
  return f != Act::kGelu && f != Act::kGeluTanh && f != Act::kSilu && f != Act::kSoftplus;
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
    case Act::kRelu6: return v > 0 && v < 6 ? 1.0f : 0.0f;
    default: return 1.0f;
  }
}

}  // namespace cairn::cudnn::kernels
