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

// The numbers that an Operation of one input has: the bounds of CLIP, the replacements of NAN_TO_NUM.
template <typename T>
struct UnaryNumbers {
  T low = -std::numeric_limits<T>::infinity(), high = std::numeric_limits<T>::infinity(), nan = 0;
};

inline float LowOf(const v1::Operation& o) { return o.has_low() ? o.low() : -std::numeric_limits<float>::infinity(); }
inline float HighOf(const v1::Operation& o) { return o.has_high() ? o.high() : std::numeric_limits<float>::infinity(); }
template <typename T>
UnaryNumbers<T> UnaryNumbersOf(const v1::Operation& o) {
  return {static_cast<T>(LowOf(o)), static_cast<T>(HighOf(o)), static_cast<T>(o.nan())};
}

template <typename T, typename Use>
void WithFurtherUnary(v1::Operation::Kind kind, Use use) {
  using O = v1::Operation;
  constexpr T kLog2 = T(0.69314718055994530942), kLog10 = T(2.30258509299404568402);
  constexpr T kErfSlope = T(1.12837916709551257390);  // 2 / sqrt(pi)
  const auto flat = [](T, T) { return T(0); };
  switch (kind) {
    case O::LOG2: return use([](T x) { return std::log2(x); }, [](T x, T) { return 1 / (x * kLog2); });
    case O::LOG10: return use([](T x) { return std::log10(x); }, [](T x, T) { return 1 / (x * kLog10); });
    case O::TAN: return use([](T x) { return std::tan(x); }, [](T, T y) { return 1 + y * y; });
    case O::ARCSIN: return use([](T x) { return std::asin(x); }, [](T x, T) { return 1 / std::sqrt(1 - x * x); });
    case O::ARCCOS: return use([](T x) { return std::acos(x); }, [](T x, T) { return -1 / std::sqrt(1 - x * x); });
    case O::ARCTAN: return use([](T x) { return std::atan(x); }, [](T x, T) { return 1 / (1 + x * x); });
    case O::SINH: return use([](T x) { return std::sinh(x); }, [](T x, T) { return std::cosh(x); });
    case O::COSH: return use([](T x) { return std::cosh(x); }, [](T x, T) { return std::sinh(x); });
    case O::ARCSINH: return use([](T x) { return std::asinh(x); }, [](T x, T) { return 1 / std::sqrt(x * x + 1); });
    case O::ARCCOSH: return use([](T x) { return std::acosh(x); }, [](T x, T) { return 1 / std::sqrt(x * x - 1); });
    case O::ARCTANH: return use([](T x) { return std::atanh(x); }, [](T x, T) { return 1 / (1 - x * x); });
    case O::ERF: return use([](T x) { return std::erf(x); }, [](T x, T) { return kErfSlope * std::exp(-x * x); });
    case O::CEIL: return use([](T x) { return std::ceil(x); }, flat);
    case O::TRUNC: return use([](T x) { return std::trunc(x); }, flat);
    case O::LOGICAL_NOT: return use([](T x) { return T(x == 0); }, flat);
    case O::IS_NAN: return use([](T x) { return T(std::isnan(x)); }, flat);
    case O::IS_INF: return use([](T x) { return T(std::isinf(x)); }, flat);
    case O::IS_FINITE: return use([](T x) { return T(std::isfinite(x)); }, flat);
    default: CAIRN_CHECK(false, "the graph checked the kind");
  }
}

// The remainder with the sign of the divisor, as in Python.
template <typename T>
T FloorMod(T a, T b) {
  const T rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

// Calls use(f(x), slope(x, y)) with the functions of a kind that has one input.
template <typename T, typename Use>
void WithUnary(v1::Operation::Kind kind, const UnaryNumbers<T>& numbers, Use use) {
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
      return use([=](T x) { return std::min(std::max(x, numbers.low), numbers.high); },
                 [=](T x, T) { return x >= numbers.low && x <= numbers.high ? T(1) : T(0); });
    case O::NAN_TO_NUM:
      return use(
          [=](T x) {
            return std::isfinite(x) ? x : std::isnan(x) ? numbers.nan : x > 0 ? numbers.high : numbers.low;
          },
          [](T x, T) { return T(std::isfinite(x)); });
    case O::SIGN: return use([](T x) { return x > 0 ? T(1) : x < 0 ? T(-1) : T(0); }, flat);
    case O::FLOOR: return use([](T x) { return std::floor(x); }, flat);
    case O::ROUND: return use([](T x) { return std::nearbyint(x); }, flat);  // halves to the even number
    case O::CAST: return use([](T x) { return x; }, [](T, T) { return T(1); });
    case O::STOP_GRADIENT: return use([](T x) { return x; }, flat);
    default: return WithFurtherUnary<T>(kind, use);
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
    case O::FLOOR_DIVIDE: return use([](T a, T b) { return std::floor(a / b); }, flat, flat);
    case O::MOD:
      return use([](T a, T b) { return FloorMod(a, b); }, one, [](T a, T b, T) { return -std::floor(a / b); });
    case O::ARCTAN2:
      return use([](T a, T b) { return std::atan2(a, b); }, [](T a, T b, T) { return b / (a * a + b * b); },
                 [](T a, T b, T) { return -a / (a * a + b * b); });
    case O::SQUARED_DIFFERENCE:
      return use([](T a, T b) { return (a - b) * (a - b); }, [](T a, T b, T) { return 2 * (a - b); },
                 [](T a, T b, T) { return 2 * (b - a); });
    case O::LOGICAL_AND: return use([](T a, T b) { return T(a != 0 && b != 0); }, flat, flat);
    case O::LOGICAL_OR: return use([](T a, T b) { return T(a != 0 || b != 0); }, flat, flat);
    case O::LOGICAL_XOR: return use([](T a, T b) { return T((a != 0) != (b != 0)); }, flat, flat);
    case O::FULL_LIKE: return use([](T, T b) { return b; }, flat, flat);
    default: CAIRN_CHECK(false, "the graph checked the kind");
  }
}

}  // namespace cairn
