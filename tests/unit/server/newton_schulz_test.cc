// Goal: what whole_rules.h is made of: products of matrices are summed in order, Newton-Schulz iterations bring
// singular values near to 1, powers are those of the C library.
#include "server/core/newton_schulz.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "server/core/power.h"
#include "tests/unit/test_seed.h"

namespace cairn {
namespace {

TEST(NewtonSchulzTest, ProductsAreSummedInOrder) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  const std::vector<std::array<size_t, 3>> sizes = {{1, 1, 1}, {4, 16, 16}, {5, 257, 17}, {7, 600, 33}, {64, 3, 2}};
  for (const auto& [m, k, n] : sizes) {
    std::vector<float> a(m * k), b(k * n), out(m * n, NAN);
    for (float& v : a) v = normal(rng);
    for (float& v : b) v = normal(rng);
    MultiplyMatrices(a.data(), b.data(), out.data(), static_cast<int64_t>(m), static_cast<int64_t>(k),
                     static_cast<int64_t>(n));
    for (size_t i = 0; i < m; ++i) {
      for (size_t j = 0; j < n; ++j) {
        float sum = 0;
        for (size_t l = 0; l < k; ++l) sum = sum + a[i * k + l] * b[l * n + j];
        ASSERT_EQ(out[i * n + j], sum) << m << "x" << k << "x" << n << " at " << i << ", " << j;
      }
    }
  }
}

// What the iterations are for: singular values near 1.
TEST(NewtonSchulzTest, RowsBecomeNearlyOrthonormal) {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal;
  std::vector<float> x(6 * 64);
  for (float& v : x) v = normal(rng);
  Orthogonalize({3.4445f, -4.775f, 2.0315f, 5}, 6, 64, x.data());
  for (size_t i = 0; i < 6; ++i) {
    for (size_t j = 0; j < 6; ++j) {
      double dot = 0;
      for (size_t l = 0; l < 64; ++l) dot += x[i * 64 + l] * x[j * 64 + l];
      EXPECT_NEAR(dot, i == j ? 1 : 0, 0.5) << i << ", " << j;
    }
  }
}

TEST(PowerTest, AgreesWithTheLibrary) {
  for (const double b : {1.0, 2.0, 3.0, 10.0, 12345.0, 1e6}) {
    for (const double y : {0.8, 0.5, 1.0, 1.25, 3.0, 0.1}) {
      EXPECT_NEAR(NegativePower(b, y) / std::pow(b, -y), 1, 1e-13) << b << " " << y;
    }
  }
  EXPECT_EQ(WholePower(0.5, 10), std::pow(0.5, 10));
  EXPECT_EQ(WholePower(0.9, 0), 1);
}

}  // namespace
}  // namespace cairn
