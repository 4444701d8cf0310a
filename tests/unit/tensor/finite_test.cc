// Goal: AllFinite agrees with std::isfinite on each number, wherever it stands among others and however many there are.
#include "common/tensor/finite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace cairn {
namespace {

TEST(Finite, AsTheStandardLibrarySaysOfEachNumber) {
  using Limits = std::numeric_limits<float>;
  EXPECT_TRUE(AllFinite({}));
  for (const float number :
       {0.0f, -0.0f, 1.5f, Limits::max(), Limits::lowest(), Limits::min(), Limits::denorm_min(), Limits::infinity(),
        -Limits::infinity(), Limits::quiet_NaN(), -Limits::quiet_NaN(), Limits::signaling_NaN()}) {
    for (const size_t size : {1, 2, 7, 16, 33, 100}) {
      for (size_t at = 0; at < size; ++at) {
        std::vector<float> numbers(size, -3.0f);
        numbers[at] = number;
        EXPECT_EQ(AllFinite(numbers), std::isfinite(number)) << number << " at " << at << " of " << size;
      }
    }
  }
}

}  // namespace
}  // namespace cairn
