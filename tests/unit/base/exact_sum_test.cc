// Goal: rounded terms add up to the same bits in every order and grouping, within the range that is promised.
#include "common/base/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

namespace cairn {
namespace {

TEST(ExactSum, EveryOrderAndGroupingHasTheSameBits) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> term(0, 500);
  std::vector<double> terms;
  for (int i = 0; i < 100'000; ++i) terms.push_back(RoundForSum(term(random)));
  double in_order = 0;
  for (double t : terms) in_order += t;
  ASSERT_LT(in_order, kExactSumMax);
  for (int round = 0; round < 5; ++round) {
    std::shuffle(terms.begin(), terms.end(), random);
    double grouped = 0;
    for (size_t i = 0; i < terms.size();) {
      double group = 0;
      const size_t end = std::min(terms.size(), i + 1 + random() % 100);
      for (; i < end; ++i) group += terms[i];
      grouped += group;
    }
    EXPECT_EQ(grouped, in_order);
  }
}

TEST(ExactSum, RoundsToTheNearestUnitOnce) {
  EXPECT_EQ(RoundForSum(0.1), std::round(0.1 * 0x1p24) * 0x1p-24);
  EXPECT_NEAR(RoundForSum(1.0 / 3), 1.0 / 3, kExactSumUnit / 2);
  EXPECT_EQ(RoundForSum(RoundForSum(0.7)), RoundForSum(0.7));
  EXPECT_EQ(RoundForSum(-2.5), -2.5);
}

TEST(ExactSum, WhatIsBeyondTheRangeIsLeft) {
  EXPECT_EQ(RoundForSum(1e300), 1e300);
  EXPECT_EQ(RoundForSum(kExactSumMax + 0.123456789), kExactSumMax + 0.123456789);
  EXPECT_TRUE(std::isnan(RoundForSum(std::numeric_limits<double>::quiet_NaN())));
  EXPECT_EQ(RoundForSum(std::numeric_limits<double>::infinity()), std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace cairn
