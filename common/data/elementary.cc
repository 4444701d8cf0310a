#include "common/data/elementary.h"

#include <cmath>

namespace cairn {
namespace {

constexpr double kLn2 = 0.693147180559945309417232121458;

}  // namespace

// e^x = 2^n e^r with |r| <= ln 2 / 2. The Taylor series of e^r, whose next term is below 2^-55.
double ExactExp(double x) {
  const double n = std::floor(x / kLn2 + 0.5), r = x - n * kLn2;
  double sum = 0;
  for (int i = 16; i >= 1; --i) sum = (1 + sum) * r / i;
  return std::ldexp(1 + sum, static_cast<int>(n));
}

// ln x = n ln 2 + ln m with m in [1/sqrt 2, sqrt 2); ln m = 2 (s + s^3/3 + ...) with s = (m - 1)/(m + 1), |s| < 0.172.
double ExactLog(double x) {
  int n = 0;
  double m = std::frexp(x, &n);
  if (m < 0.70710678118654752) {
    m *= 2;
    --n;
  }
  const double s = (m - 1) / (m + 1), ss = s * s;
  double sum = 0;
  for (int i = 23; i >= 3; i -= 2) sum = (sum + 1.0 / i) * ss;
  return n * kLn2 + 2 * s * (1 + sum);
}

}  // namespace cairn
