// Sums of float64 that do not depend on the order and grouping of their additions.
//
// Terms are rounded to multiples of 2^-24 first. Sums of such numbers are exact as long as they stay below 2^29 (53
// bits of mantissa), so that every order and grouping comes to the same bits. Beyond, and for infinities and NaN, they
// are float64's own.
#pragma once

#include <cmath>

namespace cairn {

inline constexpr double kExactSumUnit = 0x1p-24;
inline constexpr double kExactSumMax = 0x1p29;

// A pure function; applied twice it does what it does once.
inline double RoundForSum(double term) {
  return std::fabs(term) < kExactSumMax ? std::nearbyint(term / kExactSumUnit) * kExactSumUnit : term;
}

}  // namespace cairn
