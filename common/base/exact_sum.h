// Sums of float64 that do not depend on the order and grouping of their additions.
//
// Terms are first rounded to multiples of 2^-46. A sum of such terms is kept as two doubles: the nearest double, and
// the remainder. It is exact as long as the sum and all intermediate sums are below 2^60, so that every order and
// grouping gives the same bits. Larger sums, infinities and NaN follow plain float64 arithmetic.
//
// Pure functions; any thread.
#pragma once

#include <cmath>

namespace cairn {

inline constexpr double kExactSumUnit = 0x1p-46;

// A pure function; idempotent.
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
