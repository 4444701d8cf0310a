// The formulas of an Operation on one number or two, with their derivatives. Used by the tensor functions and by the
// tests of kernels.
//
// Pure functions; any thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "cairn/v1/tensor_layers.pb.h"
#include "common/base/check.h"

namespace cairn {

inline float LowOf(const v1::Operation& o) { return o.has_low() ? o.low() : -std::numeric_limits<float>::infinity(); }
inline float HighOf(const v1::Operation& o) { return o.has_high() ? o.high() : std::numeric_limits<float>::infinity(); }

// Calls use(f(x), slope(x, y)) with the functions of a kind that has one input. low, high: the bounds of CLIP.
template <typename T, typename Use>
void WithUnary(v1::Operation::Kind kind, T low, T high, Use use) {
  using O = v1::Operation;
  const auto flat = [](T, T) { return T(0); };
  switch (kind) {
    case O::NEGATIVE: return use([](T x) { return -x; }, [](T, T) { return T(-1); });
    case O::ABSOLUTE:
      return use([](T x) { return std::abs(x); }, [](T x, T) { return x > 0 ? T(1) : x < 0 ? T(-1) : T(0); });
    case O::SQUARE: return use([](T x) { return x * x; }, [](T x, T) { return 2 * x; });
    case O::SQRT: return use([](T x) { return std::sqrt(x); }, [](T, T y) { return T(0.5) / y; });
    case O::RSQRT: return use([](T x) { return 1 / std::sqrt(x); }, [](T, T y) { return T(-0.5) * y * y * y; });
    case O::EXP: return use([](T x) { return std::exp(x); }, [](T, T y) { return y; });
    case O::LOG: return use([](T x) { return std::log(x); }, [](T x, T) { return 1 / x; });
    case O::LOG1P: return use([](T x) { return std::log1p(x); }, [](T x, T) { return 1 / (1 + x); });
    case O::EXPM1: return use([](T x) { return std::expm1(x); }, [](T, T y) { return y + 1; });
    case O::SIN: return use([](T x) { return std::sin(x); }, [](T x, T) { return std::cos(x); });
    case O::COS: return use([](T x) { return std::cos(x); }, [](T x, T) { return -std::sin(x); });
    case O::TANH: return use([](T x) { return std::tanh(x); }, [](T, T y) { return 1 - y * y; });
    case O::SIGMOID: return use([](T x) { return 1 / (1 + std::exp(-x)); }, [](T, T y) { return y * (1 - y); });
    case O::RECIPROCAL: return use([](T x) { return 1 / x; }, [](T, T y) { return -y * y; });
    case O::CLIP:
      return use([=](T x) { return std::min(std::max(x, low), high); },
                 [=](T x, T) { return x >= low && x <= high ? T(1) : T(0); });
    case O::SIGN: return use([](T x) { return x > 0 ? T(1) : x < 0 ? T(-1) : T(0); }, flat);
    case O::FLOOR: return use([](T x) { return std::floor(x); }, flat);
    case O::ROUND: return use([](T x) { return std::nearbyint(x); }, flat);  // halves to the even number
    case O::CAST: return use([](T x) { return x; }, [](T, T) { return T(1); });
    case O::STOP_GRADIENT: return use([](T x) { return x; }, flat);
    default: CAIRN_CHECK(false, "the graph checked the kind");
  }
}

// Calls use(f(a, b), the slopes of a and of b, each of (a, b, y)) with the functions of a kind that has two operands.
template <typename T, typename Use>
void WithBinary(v1::Operation::Kind kind, Use use) {
  using O = v1::Operation;
  const auto one = [](T, T, T) { return T(1); };
  const auto flat = [](T, T, T) { return T(0); };
  switch (kind) {
    case O::ADD: return use([](T a, T b) { return a + b; }, one, one);
    case O::SUBTRACT: return use([](T a, T b) { return a - b; }, one, [](T, T, T) { return T(-1); });
    case O::MULTIPLY:
      return use([](T a, T b) { return a * b; }, [](T, T b, T) { return b; }, [](T a, T, T) { return a; });
    case O::DIVIDE:
      return use([](T a, T b) { return a / b; }, [](T, T b, T) { return 1 / b; }, [](T, T b, T y) { return -y / b; });
    case O::POWER:
      return use([](T a, T b) { return b == 2 ? a * a : std::pow(a, b); },
                 [](T a, T b, T) { return b == 2   ? 2 * a
                                          : b == 0 ? T(0)
                                                   : b * std::pow(a, b - 1); },
                 [](T a, T, T y) { return a > 0 ? y * std::log(a) : T(0); });
    case O::MAXIMUM:
      return use([](T a, T b) { return std::max(a, b); }, [](T a, T b, T) { return a >= b ? T(1) : T(0); },
                 [](T a, T b, T) { return a >= b ? T(0) : T(1); });
    case O::MINIMUM:
      return use([](T a, T b) { return std::min(a, b); }, [](T a, T b, T) { return a <= b ? T(1) : T(0); },
                 [](T a, T b, T) { return a <= b ? T(0) : T(1); });
    case O::EQUAL: return use([](T a, T b) { return T(a == b); }, flat, flat);
    case O::NOT_EQUAL: return use([](T a, T b) { return T(a != b); }, flat, flat);
    case O::GREATER: return use([](T a, T b) { return T(a > b); }, flat, flat);
    case O::GREATER_EQUAL: return use([](T a, T b) { return T(a >= b); }, flat, flat);
    case O::LESS: return use([](T a, T b) { return T(a < b); }, flat, flat);
    case O::LESS_EQUAL: return use([](T a, T b) { return T(a <= b); }, flat, flat);
    default: CAIRN_CHECK(false, "the graph checked the kind");
  }
}

}  // namespace cairn
