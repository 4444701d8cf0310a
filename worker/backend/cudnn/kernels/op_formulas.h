// The operations of v1::Operation on numbers, and their derivatives. The formulas are those of
// worker/backend/tensor_functors.h.
#pragma once

#include <cmath>

#include "worker/backend/cudnn/kernels/activation.h"
#include "worker/backend/cudnn/kernels/numbers.h"
#include "worker/backend/cudnn/kernels/tensors.h"

namespace cairn::cudnn::kernels {

// Of x / pi: no reduction of large arguments, which would need local memory.
#if defined(__CUDA_ARCH__)
CAIRN_DEVICE float Sine(float x) { return static_cast<float>(sinpi(x * 0.31830988618379067154)); }
CAIRN_DEVICE float Cosine(float x) { return static_cast<float>(cospi(x * 0.31830988618379067154)); }
#else
CAIRN_DEVICE float Sine(float x) { return sinf(x); }
CAIRN_DEVICE float Cosine(float x) { return cosf(x); }
#endif

CAIRN_DEVICE bool IsNan(float x) { return x != x; }
CAIRN_DEVICE bool IsInf(float x) { return (BitsOf(x) & 0x7fffffff) == 0x7f800000; }
// The remainder with the sign of the divisor.
CAIRN_DEVICE float FloorMod(float a, float b) {
  const float rest = fmodf(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

struct Arguments {
  float a, b, c;
  float low, high, nan;
};

CAIRN_DEVICE float ValueOf(Op op, const Arguments& v) {
  const float a = v.a, b = v.b;
  switch (op) {
    case Op::kAdd: return a + b;
    case Op::kSubtract: return a - b;
    case Op::kMultiply: return a * b;
    case Op::kDivide: return a / b;
    case Op::kPower: return b == 2 ? a * a : powf(a, b);
    case Op::kMaximum: return a < b ? b : a;
    case Op::kMinimum: return b < a ? b : a;
    case Op::kNegative: return -a;
    case Op::kAbsolute: return fabsf(a);
    case Op::kSquare: return a * a;
    case Op::kSqrt: return sqrtf(a);
    case Op::kRsqrt: return 1 / sqrtf(a);
    case Op::kExp: return expf(a);
    case Op::kLog: return logf(a);
    case Op::kLog1p: return log1pf(a);
    case Op::kExpm1: return expm1f(a);
    case Op::kSin: return Sine(a);
    case Op::kCos: return Cosine(a);
    case Op::kTanh: return tanhf(a);
    case Op::kSigmoid: return Sigmoid(a);
    case Op::kReciprocal: return 1 / a;
    case Op::kClip: return Clamp(a, v.low, v.high);
    case Op::kSign: return a > 0 ? 1.0f : (a < 0 ? -1.0f : 0.0f);
    case Op::kFloor: return floorf(a);
    case Op::kRound: return rintf(a);  // halves to the even number
    case Op::kEqual: return a == b ? 1.0f : 0.0f;
    case Op::kNotEqual: return a != b ? 1.0f : 0.0f;
    case Op::kGreater: return a > b ? 1.0f : 0.0f;
    case Op::kGreaterEqual: return a >= b ? 1.0f : 0.0f;
    case Op::kLess: return a < b ? 1.0f : 0.0f;
    case Op::kLessEqual: return a <= b ? 1.0f : 0.0f;
    case Op::kWhere: return a != 0 ? b : v.c;
    case Op::kFloorDivide: return floorf(a / b);
    case Op::kMod: return FloorMod(a, b);
    case Op::kArcTan2: return atan2f(a, b);
    case Op::kSquaredDifference: return (a - b) * (a - b);
    case Op::kLog2: return log2f(a);
    case Op::kLog10: return log10f(a);
    case Op::kTan: return Sine(a) / Cosine(a);
    case Op::kArcSin: return asinf(a);
    case Op::kArcCos: return acosf(a);
    case Op::kArcTan: return atanf(a);
    case Op::kSinh: return sinhf(a);
    case Op::kCosh: return coshf(a);
    case Op::kArcSinh: return asinhf(a);
    case Op::kArcCosh: return acoshf(a);
    case Op::kArcTanh: return atanhf(a);
    case Op::kErf: return erff(a);
    case Op::kCeil: return ceilf(a);
    case Op::kTrunc: return truncf(a);
    case Op::kLogicalNot: return a == 0 ? 1.0f : 0.0f;
    case Op::kIsNan: return IsNan(a) ? 1.0f : 0.0f;
    case Op::kIsInf: return IsInf(a) ? 1.0f : 0.0f;
    case Op::kIsFinite: return !IsNan(a) && !IsInf(a) ? 1.0f : 0.0f;
    case Op::kLogicalAnd: return a != 0 && b != 0 ? 1.0f : 0.0f;
    case Op::kLogicalOr: return a != 0 || b != 0 ? 1.0f : 0.0f;
    case Op::kLogicalXor: return (a != 0) != (b != 0) ? 1.0f : 0.0f;
    case Op::kNanToNum: return IsNan(a) ? v.nan : (!IsInf(a) ? a : (a > 0 ? v.high : v.low));
    case Op::kFullLike: return b;
    default: return a;  // kCast, kStopGradient
  }
}

CAIRN_DEVICE float FirstSlope(Op op, const Arguments& v) {
  const float a = v.a, b = v.b;
  switch (op) {
    case Op::kAdd:
    case Op::kSubtract:
    case Op::kMod:
    case Op::kCast: return 1.0f;
    case Op::kMultiply: return b;
    case Op::kDivide: return 1 / b;
    case Op::kPower: return b == 2 ? 2 * a : (b == 0 ? 0.0f : b * powf(a, b - 1));
    case Op::kMaximum: return a >= b ? 1.0f : 0.0f;
    case Op::kMinimum: return a <= b ? 1.0f : 0.0f;
    case Op::kNegative: return -1.0f;
    case Op::kAbsolute: return a > 0 ? 1.0f : (a < 0 ? -1.0f : 0.0f);
    case Op::kSquare: return 2 * a;
    case Op::kSqrt: return 0.5f / sqrtf(a);
    case Op::kRsqrt: return -0.5f / (a * sqrtf(a));
    case Op::kExp:
    case Op::kExpm1: return expf(a);
    case Op::kLog: return 1 / a;
    case Op::kLog1p: return 1 / (1 + a);
    case Op::kSin: return Cosine(a);
    case Op::kCos: return -Sine(a);
    case Op::kTanh: {
      const float y = tanhf(a);
      return 1 - y * y;
    }
    case Op::kSigmoid: {
      const float y = Sigmoid(a);
      return y * (1 - y);
    }
    case Op::kReciprocal: return -1 / (a * a);
    case Op::kClip: return a >= v.low && a <= v.high ? 1.0f : 0.0f;
    case Op::kArcTan2: return b / (a * a + b * b);
    case Op::kSquaredDifference: return 2 * (a - b);
    case Op::kLog2: return 1 / (a * 0.69314718f);
    case Op::kLog10: return 1 / (a * 2.30258509f);
    case Op::kTan: return 1 / (Cosine(a) * Cosine(a));
    case Op::kArcSin: return 1 / sqrtf(1 - a * a);
    case Op::kArcCos: return -1 / sqrtf(1 - a * a);
    case Op::kArcTan: return 1 / (1 + a * a);
    case Op::kSinh: return coshf(a);
    case Op::kCosh: return sinhf(a);
    case Op::kArcSinh: return 1 / sqrtf(a * a + 1);
    case Op::kArcCosh: return 1 / sqrtf(a * a - 1);
    case Op::kArcTanh: return 1 / (1 - a * a);
    case Op::kErf: return 1.12837917f * expf(-a * a);  // 2 / sqrt(pi)
    case Op::kNanToNum: return IsNan(a) || IsInf(a) ? 0.0f : 1.0f;
    default: return 0.0f;
  }
}

CAIRN_DEVICE float SlopeOf(Op op, int which, const Arguments& v) {
  const float a = v.a, b = v.b;
  if (which == 0) return FirstSlope(op, v);
  if (which == 2) return a != 0 ? 0.0f : 1.0f;  // kWhere
  switch (op) {
    case Op::kAdd: return 1.0f;
    case Op::kSubtract: return -1.0f;
    case Op::kMultiply: return a;
    case Op::kDivide: return -a / (b * b);
    case Op::kPower: return a > 0 ? powf(a, b) * logf(a) : 0.0f;
    case Op::kMaximum: return a >= b ? 0.0f : 1.0f;
    case Op::kMinimum: return a <= b ? 0.0f : 1.0f;
    case Op::kMod: return -floorf(a / b);
    case Op::kArcTan2: return -a / (a * a + b * b);
    case Op::kSquaredDifference: return 2 * (b - a);
    case Op::kWhere: return a != 0 ? 1.0f : 0.0f;
    default: return 0.0f;
  }
}

CAIRN_ANYWHERE constexpr int OperandsOf(Op op) {
  if (op == Op::kWhere) return 3;
  const bool compares = op >= Op::kEqual && op <= Op::kLessEqual;
  const bool logical = op >= Op::kLogicalAnd && op <= Op::kLogicalXor;
  return op < Op::kNegative || compares || logical || op == Op::kFullLike ? 2 : 1;
}

}  // namespace cairn::cudnn::kernels
