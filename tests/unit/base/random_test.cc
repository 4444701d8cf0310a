// Goal: Philox4x32-10 gives the published known answers (Random123's kat_vectors), and Permutation is a bijection of
// every size.
#include "common/base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace cairn {
namespace {

TEST(Philox, KnownAnswers) {
  EXPECT_EQ(Philox({0, 0}, {0, 0, 0, 0}), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox({~0u, ~0u}, {~0u, ~0u, ~0u, ~0u}), (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  // The digits of pi.
  EXPECT_EQ(Philox({0xa4093822, 0x299f31d0}, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, StreamsOfOneSeedDiffer) {
  std::set<std::array<uint32_t, 2>> keys;
  for (uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32, ~uint64_t{0}}) {
    for (uint32_t s = 1; s <= 6; ++s) keys.insert(StreamKey(seed, static_cast<RandomStream>(s)));
  }
  EXPECT_EQ(keys.size(), 24u);
}

TEST(Philox, UniformLiesInTheHalfOpenUnitInterval) {
  EXPECT_EQ(ToUniform(0), 0.0f);
  EXPECT_LT(ToUniform(~0u), 1.0f);
  double sum = 0;
  for (uint32_t i = 0; i < 10000; ++i) {
    for (uint32_t bits : Philox({1, 2}, {i, 0, 0, 0})) sum += ToUniform(bits);
  }
  EXPECT_NEAR(sum / 40000, 0.5, 0.01);  // fixed input: seven standard deviations
}

TEST(Permutation, IsABijectionOfEverySmallSize) {
  for (uint64_t size = 1; size <= 300; ++size) {
    const Permutation p(StreamKey(5, RandomStream::kShuffle), size % 7, size);
    std::vector<bool> hit(size);
    for (uint64_t i = 0; i < size; ++i) {
      const uint64_t v = p(i);
      ASSERT_LT(v, size);
      ASSERT_FALSE(hit[v]) << size;
      hit[v] = true;
    }
  }
}

TEST(Permutation, IsABijectionOfALargeSizeAndShuffles) {
  constexpr uint64_t kSize = 60'000;
  const Permutation p(StreamKey(0, RandomStream::kShuffle), 3, kSize);
  std::vector<bool> hit(kSize);
  uint64_t fixed = 0;
  double distance = 0;
  for (uint64_t i = 0; i < kSize; ++i) {
    const uint64_t v = p(i);
    ASSERT_FALSE(hit[v]);
    hit[v] = true;
    fixed += v == i;
    distance += std::abs(static_cast<double>(v) - static_cast<double>(i));
  }
  EXPECT_LT(fixed, 20u);                                 // 1 is expected
  EXPECT_NEAR(distance / kSize / kSize, 1.0 / 3, 0.01);  // of two independent uniform places
}

TEST(Permutation, DependsOnKeyAndWhich) {
  const auto order = [](uint64_t seed, uint64_t which) {
    const Permutation p(StreamKey(seed, RandomStream::kShuffle), which, 1000);
    std::vector<uint64_t> out;
    for (uint64_t i = 0; i < 1000; ++i) out.push_back(p(i));
    return out;
  };
  EXPECT_EQ(order(1, 1), order(1, 1));
  EXPECT_NE(order(1, 1), order(1, 2));
  EXPECT_NE(order(1, 1), order(2, 1));
  EXPECT_NE(order(1, 1), order(1, uint64_t{1} << 32 | 1));
}

TEST(Permutation, WorksNearTheLargestSizes) {
  const uint64_t size = (uint64_t{1} << 40) + 12345;
  const Permutation p({1, 2}, 0, size);
  std::set<uint64_t> seen;
  for (uint64_t i = 0; i < 1000; ++i) {
    EXPECT_LT(p(size - 1 - i), size);
    seen.insert(p(size - 1 - i));
  }
  EXPECT_EQ(seen.size(), 1000u);
}

}  // namespace
}  // namespace cairn
