// Goal: rounded terms add up to the same bits in every order and grouping, within the range that is promised.
#include "common/base/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "common/base/limits.h"

namespace cairn {
namespace {

bool operator==(const ExactSum& a, const ExactSum& b) { return a.value == b.value && a.rest == b.rest; }

void ExpectTheSameInEveryOrder(std::vector<double> terms) {
  std::mt19937_64 random(2);
  ExactSum in_order;
  for (double t : terms) in_order.Add(t);
  ASSERT_LT(in_order.value, kExactSumMax);
  EXPECT_EQ(in_order.value, in_order.value + in_order.rest) << "the nearest double";
  for (int round = 0; round < 5; ++round) {
    std::shuffle(terms.begin(), terms.end(), random);
    ExactSum grouped;
    for (size_t i = 0; i < terms.size();) {
      ExactSum group;
      const size_t end = std::min(terms.size(), i + 1 + random() % 100);
      for (; i < end; ++i) group.Add(terms[i]);
      grouped.Add(group.value, group.rest);
    }
    EXPECT_TRUE(grouped == in_order) << grouped.value << " + " << grouped.rest << ", " << in_order.value << " + "
                                     << in_order.rest;
  }
}

TEST(ExactSum, EveryOrderAndGroupingHasTheSameBits) {
  std::mt19937_64 random(1);
  for (const double largest : {1e-7, 500.0, 1e12}) {
    std::uniform_real_distribution<double> term(-largest / 9, largest);
    std::vector<double> terms;
    for (int i = 0; i < 100'000; ++i) terms.push_back(RoundForSum(term(random)));
    ExpectTheSameInEveryOrder(std::move(terms));
  }
}

TEST(ExactSum, WhatCancelsOutLeavesTheSmallTerms) {
  ExactSum sum;
  for (double t : {0x1p59, 0x1p-46, 3.0, -0x1p59}) sum.Add(t);
  EXPECT_EQ(sum.value, 3 + 0x1p-46);
  EXPECT_EQ(sum.rest, 0);
}

TEST(ExactSum, RoundsToTheNearestUnitOnce) {
  EXPECT_EQ(RoundForSum(0.1), std::round(0.1 * 0x1p46) * 0x1p-46);
  EXPECT_NEAR(RoundForSum(1e-9), 1e-9, kExactSumUnit / 2);
  EXPECT_EQ(RoundForSum(RoundForSum(0.7)), RoundForSum(0.7));
  EXPECT_EQ(RoundForSum(-2.5), -2.5);
  EXPECT_EQ(RoundForSum(128.1), 128.1) << "a multiple of the unit";
}

TEST(ExactSum, BeyondTheRangeAreFloat64sOwnSums) {
  EXPECT_EQ(RoundForSum(1e300), 1e300);
  EXPECT_TRUE(std::isnan(RoundForSum(std::numeric_limits<double>::quiet_NaN())));
  EXPECT_EQ(RoundForSum(std::numeric_limits<double>::infinity()), std::numeric_limits<double>::infinity());
  ExactSum large{1e300, 0};
  large.Add(1e300);
  EXPECT_EQ(large.value, 2e300);
  ExactSum grows{kExactSumMax, 0};
  grows.Add(kExactSumMax);
  grows.Add(kExactSumMax);
  EXPECT_EQ(grows.value, 3 * kExactSumMax);
  ExactSum lost{3, 0x1p-46};
  lost.Add(std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(std::isnan(lost.value));
  lost.Add(1);
  EXPECT_TRUE(std::isnan(lost.value));
  EXPECT_EQ(lost.rest, 0);
}

}  // namespace
}  // namespace cairn
