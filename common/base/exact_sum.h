// Sums of float64 that do not depend on the order and grouping of their additions.
//
// Terms are rounded to multiples of 2^-46 first. A sum of such terms is kept as two doubles: the one that is nearest to
// it, and what it is above that one. So it is exact as long as it, and every sum on the way to it, is below 2^60, and
// every order and grouping comes to the same bits. Beyond, and for infinities and NaN, sums are float64's own.
//
// Pure functions; any thread.
#pragma once

#include <cmath>

namespace cairn {

inline constexpr double kExactSumUnit = 0x1p-46;

// A pure function; applied twice it does what it does once.
inline double RoundForSum(double term) {
  // From 2^7 on a double's last bit is a multiple of the unit.
  return std::fabs(term) < 0x1p7 ? std::nearbyint(term / kExactSumUnit) * kExactSumUnit : term;
}

struct ExactSum {
  double value = 0;  // the double nearest to the sum
  double rest = 0;   // the sum minus `value`

  // Adds a rounded term, or another sum.
  void Add(double added, double added_rest = 0);
};

}  // namespace cairn
