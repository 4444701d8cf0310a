// Goal: a sum of squares has the same bits however its numbers are cut and ordered, is as precise as it says, and is
// not finite exactly if a square is not. It is compared with a sum in 128-bit floats.
#include "common/tensor/square_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/unit/test_seed.h"

namespace cairn {
namespace {

double TrueRoot(const std::vector<float>& numbers, float divisor) {
  __float128 sum = 0;
  for (float n : numbers) {
    const __float128 q = static_cast<float>(n / divisor);
    sum += q * q;
  }
  // Of the root: scaled first into the range of long double.
  return static_cast<double>(std::sqrt(static_cast<long double>(sum)));
}

SquareSum Of(const std::vector<float>& numbers, float divisor = 1) {
  SquareSum sum;
  sum.Add(numbers, divisor);
  return sum;
}

std::string Bytes(const SquareSum& sum) {
  std::string out;
  sum.AppendTo(&out);
  return out;
}

TEST(SquareSum, DoesNotDependOnCutsAndOrder) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  for (int round = 0; round < 200; ++round) {
    std::vector<float> numbers(1 + rng() % 5000);
    for (float& n : numbers) {
      // Every magnitude that a float has, denormals too.
      do n = std::bit_cast<float>(static_cast<uint32_t>(rng()));
      while (!std::isfinite(n));
      if (round % 2 == 0) n = std::ldexp(static_cast<float>(rng() % 1000) - 500, -9);
    }
    const float divisor = static_cast<float>(1 + rng() % 100);
    const SquareSum whole = Of(numbers, divisor);
    std::vector<SquareSum> parts;
    for (size_t begin = 0; begin < numbers.size();) {
      const size_t end = std::min(numbers.size(), begin + 16 * (1 + rng() % 40));
      parts.emplace_back().Add(absl::MakeConstSpan(numbers).subspan(begin, end - begin), divisor);
      begin = end;
    }
    std::shuffle(parts.begin(), parts.end(), rng);
    SquareSum sum;
    for (const SquareSum& part : parts) sum.Add(SquareSum::From(Bytes(part)));
    ASSERT_EQ(Bytes(sum), Bytes(whole)) << "round " << round;
    ASSERT_TRUE(sum == whole);
    const double root = TrueRoot(numbers, divisor);
    ASSERT_NEAR(whole.Root(), root, root * 0x1p-50) << "round " << round;
  }
}

TEST(SquareSum, Extremes) {
  const float smallest = std::numeric_limits<float>::denorm_min(), largest = std::numeric_limits<float>::max();
  EXPECT_EQ(Of({}).Root(), 0);
  EXPECT_EQ(Of({0, -0.0f}).Root(), 0);
  EXPECT_EQ(Of({smallest}).Root(), double{smallest});
  EXPECT_EQ(Of({largest}).Root(), double{largest});
  EXPECT_EQ(Of({3, 4}).Root(), 5);
  EXPECT_EQ(Of({6, -8}, 2).Root(), 5);
  // One tiny number beside a huge one in another block is kept: the sums differ, although the roots do not.
  std::vector<float> far(32, 0.0f);
  far[0] = largest;
  far[16] = smallest;
  EXPECT_NE(Bytes(Of(far)), Bytes(Of({largest})));
  EXPECT_EQ(Of(far).Root(), double{largest});
  // Far more of the largest numbers than a model has: no overflow.
  SquareSum many = Of(std::vector<float>(4096, largest));
  for (int i = 0; i < 24; ++i) many.Add(SquareSum(many));  // 2^36 numbers
  EXPECT_TRUE(many.finite());
  EXPECT_DOUBLE_EQ(many.Root(), double{largest} * 0x1p18);
}

TEST(SquareSum, InfinitiesAndNaNStay) {
  for (float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), NAN}) {
    for (size_t at : {size_t{0}, size_t{20}, size_t{99}}) {
      std::vector<float> numbers(100, 1.0f);
      numbers[at] = bad;
      SquareSum sum = Of(numbers);
      EXPECT_FALSE(sum.finite());
      EXPECT_TRUE(std::isnan(sum.Root()));
      EXPECT_TRUE(std::isnan(SquareSum::From(Bytes(sum)).Root()));
      SquareSum other = Of({1});
      other.Add(sum);
      EXPECT_TRUE(std::isnan(other.Root()));
      sum.Add(std::vector<float>{1.0f}, 1);
      EXPECT_EQ(Bytes(sum), Bytes(other)) << "one encoding";
    }
  }
}

// Any bytes that a peer may send.
TEST(SquareSum, AnyBytesAreTaken) {
  std::mt19937 rng(7);
  for (int i = 0; i < 1000; ++i) {
    std::string a(SquareSum::kBytes, '\0'), b = a;
    for (char& c : a) c = static_cast<char>(rng());
    for (char& c : b) c = static_cast<char>(rng());
    SquareSum sum = SquareSum::From(a);
    sum.Add(SquareSum::From(b));
    EXPECT_TRUE(std::isnan(sum.Root()) == !sum.finite());
  }
}

}  // namespace
}  // namespace cairn
