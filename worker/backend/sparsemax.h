// Sparsemax (Martins and Astudillo 2016, algorithm 1): the point of the simplex that is nearest to a row of numbers.
//
// Pure functions; any thread. T: float or double. Sums are float64.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

namespace cairn {

// y may not be x.
template <typename T>
void Sparsemax(const T* x, int64_t count, T* y) {
  std::vector<T> sorted(x, x + count);
  std::sort(sorted.begin(), sorted.end(), std::greater<T>());
  double sum = 0, threshold = 0;
  for (int64_t k = 1; k <= count; ++k) {
    const double number = sorted[static_cast<size_t>(k) - 1];
    sum += number;
    if (1 + static_cast<double>(k) * number <= sum) break;  // it and all smaller ones become 0
    threshold = (sum - 1) / static_cast<double>(k);
  }
  for (int64_t i = 0; i < count; ++i) y[i] = static_cast<T>(std::max(x[i] - threshold, 0.0));
}

// Overwrites dx: of the numbers that are not 0, dy less its mean over these. dx may be dy.
template <typename T>
void SparsemaxBackward(const T* y, const T* dy, int64_t count, T* dx) {
  double sum = 0, kept = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (y[i] <= 0) continue;
    sum += dy[i];
    ++kept;
  }
  const double mean = kept > 0 ? sum / kept : 0;
  for (int64_t i = 0; i < count; ++i) dx[i] = y[i] > 0 ? static_cast<T>(dy[i] - mean) : T(0);
}

}  // namespace cairn
