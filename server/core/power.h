// Powers that have the same bits on every machine: products and square roots only, which IEEE 754 rounds exactly.
// std::pow differs between C libraries.
//
// Pure functions; any thread.
#pragma once

#include <cmath>
#include <cstdint>

namespace cairn {

// b^n by repeated squaring.
inline double WholePower(double b, uint64_t n) {
  double result = 1;
  for (; n > 0; n >>= 1, b *= b) {
    if (n & 1) result *= b;
  }
  return result;
}

// b^-y for b >= 1 and y >= 0, within about 2^-47: b^(whole part of y) times the roots of b that the binary digits of
// the rest name.
inline double NegativePower(double b, double y) {
  double result = WholePower(b, static_cast<uint64_t>(y)), rest = y - std::floor(y);
  for (double root = b; rest > 0;) {
    root = std::sqrt(root);
    rest *= 2;
    if (rest >= 1) {
      result *= root;
      rest -= 1;
    }
  }
  return 1 / result;
}

}  // namespace cairn
