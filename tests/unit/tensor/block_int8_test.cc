// Goal: gradients in 8 bits. What is rounded is one of the two neighbours that the format has, each as often as it is
// near; it stays as it is from then on; packing is exact; the bits depend on key and place alone, not on how the
// numbers were cut; what is not finite is found.
#include "common/tensor/block_int8.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/unit/tensor/same_bits.h"

namespace cairn {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargest = 127 * 0x1p121f;

// The step of a block, from the definition: the least power of two, 2^-126 or more, of which 127 reach to the largest
// number.
double StepOf(const float* block) {
  double largest = 0;
  for (size_t j = 0; j < kInt8Block; ++j) largest = std::max(largest, std::fabs(static_cast<double>(block[j])));
  double step = 0x1p-126;
  while (127 * step < largest) step *= 2;
  return step;
}

std::vector<float> Numbers(uint32_t seed, size_t blocks) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(blocks * kInt8Block);
  for (size_t b = 0; b < blocks; ++b) {
    const int exponent = static_cast<int>(random() % 230) - 115;
    for (size_t j = 0; j < kInt8Block; ++j) {
      numbers[b * kInt8Block + j] =
          random() % 9 == 0 ? 0 : std::ldexp(normal(random), exponent - static_cast<int>(random() % 12));
    }
  }
  return numbers;
}

std::vector<uint8_t> Packed(const std::vector<float>& numbers) {
  std::vector<uint8_t> bytes(Int8BytesOf(numbers.size()));
  PackInt8(numbers, absl::MakeSpan(bytes));
  return bytes;
}
std::vector<float> Unpacked(const std::vector<uint8_t>& bytes) {
  std::vector<float> numbers(bytes.size() / 17 * 16);
  UnpackInt8(bytes, absl::MakeSpan(numbers));
  return numbers;
}

TEST(BlockInt8Test, RoundingTakesANeighbourAndRoundsNothingTwice) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    const std::vector<float> numbers = Numbers(seed, 300);
    std::vector<float> rounded = numbers;
    RoundInt8(Int8Key::Of(seed, 3, 4, 2), 1600, absl::MakeSpan(rounded));
    for (size_t i = 0; i < numbers.size(); ++i) {
      const double step = StepOf(&numbers[i / kInt8Block * kInt8Block]), place = numbers[i] / step,
                   got = rounded[i] / step;
      ASSERT_TRUE(got == std::floor(place) || got == std::ceil(place))
          << i << ": " << numbers[i] << " became " << rounded[i] << ", step " << step;
      ASSERT_LE(std::fabs(got), 127);
    }
    for (const Int8Key key : {Int8Key::Of(seed, 3, 4, 2), Int8Key::Of(seed, 3, 0, 8), Int8Key::Of(1, 2, 3, 4)}) {
      std::vector<float> again = rounded;
      RoundInt8(key, 32, absl::MakeSpan(again));
      EXPECT_TRUE(SameBits(again, rounded)) << "what has been rounded";
      std::vector<uint8_t> bytes(Int8BytesOf(numbers.size()));
      PackInt8(key, 32, rounded, absl::MakeSpan(bytes));
      EXPECT_EQ(bytes, Packed(rounded));
    }
    EXPECT_TRUE(SameBits(Unpacked(Packed(rounded)), rounded)) << "there and back";
    std::vector<uint8_t> at_once(Int8BytesOf(numbers.size()) + 1);  // payloads are not aligned
    const auto odd = absl::MakeSpan(at_once).subspan(1);
    PackInt8(Int8Key::Of(seed, 3, 4, 2), 1600, numbers, odd);
    std::vector<float> back(numbers.size());
    UnpackInt8(odd, absl::MakeSpan(back));
    EXPECT_TRUE(SameBits(back, rounded)) << "rounded and packed in one";
  }
}

TEST(BlockInt8Test, ASumIsAddedAndRounded) {
  const std::vector<float> left = Numbers(1, 200), right = Numbers(2, 200);
  std::vector<float> expected(left.size()), sum = left;
  for (size_t i = 0; i < left.size(); ++i) expected[i] = left[i] + right[i];
  RoundInt8(Int8Key::Of(7, 8, 0, 2), 48, absl::MakeSpan(expected));
  SumRoundedInt8(Int8Key::Of(7, 8, 0, 2), 48, absl::MakeSpan(sum), right);
  EXPECT_TRUE(SameBits(sum, expected));
}

// The mean over many updates is the number itself, and the spread is that of a coin with the place as its chance.
TEST(BlockInt8Test, TheMeanOfManyDrawsIsTheNumber) {
  const std::vector<float> numbers = Numbers(5, 8);
  constexpr int kDraws = 20000;
  std::vector<double> sums(numbers.size());
  for (int draw = 0; draw < kDraws; ++draw) {
    std::vector<float> rounded = numbers;
    RoundInt8(Int8Key::Of(11, static_cast<uint64_t>(draw), 0, 4), 320, absl::MakeSpan(rounded));
    for (size_t i = 0; i < numbers.size(); ++i) sums[i] += rounded[i];
  }
  for (size_t i = 0; i < numbers.size(); ++i) {
    const double step = StepOf(&numbers[i / kInt8Block * kInt8Block]), place = numbers[i] / step;
    const double up = place - std::floor(place), deviation = std::sqrt(up * (1 - up) / kDraws) + 0x1p-16;
    EXPECT_NEAR(sums[i] / kDraws / step, place, 5 * deviation) << i;
  }
}

// Draws of neighbours, nodes, updates and seeds are independent: pairs agree as often as chance predicts.
TEST(BlockInt8Test, DrawsAreIndependent) {
  constexpr size_t kCount = 64 * 1024;
  std::vector<float> halves(kCount, 10.5f);
  for (size_t i = 0; i < kCount; i += kInt8Block) halves[i] = 100;  // steps of 1: the others are a coin
  const auto ups = [&](Int8Key key, int64_t begin) {
    std::vector<float> rounded = halves;
    RoundInt8(key, begin, absl::MakeSpan(rounded));
    return rounded;
  };
  const std::vector<float> base = ups(Int8Key::Of(1, 1, 0, 4), 0);
  const auto expect_half = [&](const std::vector<float>& other, size_t shift, const char* what) {
    int64_t same = 0, all = 0;
    for (size_t i = 0; i + shift < kCount; ++i) {
      if (i % kInt8Block == 0 || (i + shift) % kInt8Block == 0) continue;
      ++all;
      same += base[i] == other[i + shift];
    }
    EXPECT_NEAR(static_cast<double>(same) / static_cast<double>(all), 0.5, 0.012)
        << what << " " << shift;  // 6 deviations
  };
  expect_half(ups(Int8Key::Of(2, 1, 0, 4), 0), 0, "seed");
  expect_half(ups(Int8Key::Of(1, 2, 0, 4), 0), 0, "update");
  expect_half(ups(Int8Key::Of(1, 1, 4, 4), 0), 0, "node");
  expect_half(ups(Int8Key::Of(1, 1, 0, 2), 0), 0, "node");
  expect_half(ups(Int8Key::Of(1, 1, 0, 4), kCount), 0, "place");
  for (const size_t shift : {1, 2, 3, 8, 15, 16, 17, 32, 1024}) expect_half(base, shift, "distance");
}

TEST(BlockInt8Test, TheBitsDoNotDependOnTheCut) {
  const std::vector<float> numbers = Numbers(9, 64);
  const Int8Key key = Int8Key::Of(3, 4, 5, 1);
  std::vector<float> whole = numbers, cut = numbers;
  RoundInt8(key, 160, absl::MakeSpan(whole));
  for (size_t at = 0; at < cut.size();) {
    const size_t count = std::min(cut.size() - at, (at / 16 % 5 + 1) * 16);
    RoundInt8(key, 160 + static_cast<int64_t>(at), absl::MakeSpan(cut).subspan(at, count));
    at += count;
  }
  EXPECT_TRUE(SameBits(whole, cut));
}

TEST(BlockInt8Test, WhatIsNotFiniteSpoilsItsBlockAndNoOther) {
  for (const float odd :
       {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN(), std::bit_cast<float>(0xffffffffu),
        std::bit_cast<float>(0x7f800001u), std::numeric_limits<float>::max(), -std::nextafter(kLargest, kInfinity)}) {
    for (size_t at : {0u, 7u, 15u}) {
      std::vector<float> numbers = Numbers(2, 3);
      numbers[16 + at] = odd;
      std::vector<float> rounded = numbers;
      RoundInt8(Int8Key::Of(1, 2, 3, 4), 0, absl::MakeSpan(rounded));
      for (size_t i = 0; i < rounded.size(); ++i) EXPECT_EQ(std::isfinite(rounded[i]), i / 16 != 1) << odd << " " << i;
      EXPECT_TRUE(SameBits(Unpacked(Packed(rounded)), rounded));
      std::vector<float> sum(numbers.size());
      SumRoundedInt8(Int8Key::Of(1, 2, 3, 4), 0, absl::MakeSpan(sum), numbers);
      EXPECT_TRUE(std::isnan(sum[16])) << odd;
      EXPECT_TRUE(std::isfinite(sum[15]) && std::isfinite(sum[32])) << odd;
    }
  }
}

TEST(BlockInt8Test, TheEndsOfTheRange) {
  std::vector<float> zeros(16);
  zeros[3] = -0.0f;
  RoundInt8(Int8Key::Of(1, 2, 3, 4), 0, absl::MakeSpan(zeros));
  EXPECT_TRUE(SameBits(zeros, std::vector<float>(16))) << "zeros have no sign";
  EXPECT_TRUE(SameBits(Unpacked(Packed(zeros)), zeros));

  std::vector<float> largest(16, kLargest);
  largest[1] = -kLargest;
  const std::vector<float> before = largest;
  RoundInt8(Int8Key::Of(1, 2, 3, 4), 0, absl::MakeSpan(largest));
  EXPECT_TRUE(SameBits(largest, before));
  EXPECT_TRUE(SameBits(Unpacked(Packed(largest)), before));

  // Subnormal: 0 or 2^-126, and the mean is kept.
  double sum = 0;
  constexpr int kDraws = 4000;
  for (int draw = 0; draw < kDraws; ++draw) {
    std::vector<float> small(16, 0x1p-128f);
    RoundInt8(Int8Key::Of(1, static_cast<uint64_t>(draw), 3, 4), 0, absl::MakeSpan(small));
    for (float f : small) {
      ASSERT_TRUE(f == 0 || f == 0x1p-126f) << f;
      sum += f / 0x1p-126f;
    }
  }
  EXPECT_NEAR(sum / (16 * kDraws), 0.25, 0.01);
}

// A peer may send any bytes.
TEST(BlockInt8Test, AnyBytesHaveAMeaning) {
  for (int exponent = 0; exponent < 256; ++exponent) {
    for (int first = -128; first < 128; first += 16) {
      std::vector<uint8_t> bytes(17);
      for (int j = 0; j < 16; ++j) bytes[static_cast<size_t>(j)] = static_cast<uint8_t>(first + j);
      bytes[16] = static_cast<uint8_t>(exponent);
      const std::vector<float> numbers = Unpacked(bytes);
      for (int j = 0; j < 16; ++j) {
        const float got = numbers[static_cast<size_t>(j)];
        if (exponent == 255) {
          ASSERT_TRUE(std::isnan(got));
        } else {
          ASSERT_EQ(got, static_cast<float>(std::ldexp(static_cast<double>(first + j), exponent - 133)))
              << exponent << " " << first + j;
        }
      }
    }
  }
}

}  // namespace
}  // namespace cairn
