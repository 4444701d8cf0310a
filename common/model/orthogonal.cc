#include "common/model/orthogonal.h"

#include <cmath>

namespace cairn {
namespace {

constexpr int64_t kSums = 8;  // independent sums, so that the compiler can vectorize

double Dot(const double* x, const double* y, int64_t length) {
  double sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= length; i += kSums) {
    for (int64_t k = 0; k < kSums; ++k) sums[k] += x[i + k] * y[i + k];
  }
  for (; i < length; ++i) sums[0] += x[i] * y[i];
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

}  // namespace

// The modified process (Bjorck 1967): each finished vector is immediately projected out of all following ones.
void Orthonormalize(int64_t count, int64_t length, absl::Span<double> vectors) {
  for (int64_t done = 0; done < count; ++done) {
    double* const q = vectors.data() + done * length;
    const double norm = std::sqrt(Dot(q, q, length));
    for (int64_t i = 0; i < length; ++i) q[i] /= norm;
    for (int64_t next = done + 1; next < count; ++next) {
      double* const v = vectors.data() + next * length;
      const double share = Dot(q, v, length);
      for (int64_t i = 0; i < length; ++i) v[i] -= share * q[i];
    }
  }
}

}  // namespace cairn
