// Goal: numbers in 8, 4 and 2 bits. What is rounded is one of the two neighbours that the format has, each as often as
// it is near; it stays as it is from then on; packing is exact; the bits depend on key and place alone, not on how the
// numbers were cut; what is not finite is found.
#include "common/tensor/block_int.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/unit/tensor/same_bits.h"

namespace cairn {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A type, from its definition.
struct Format {
  v1::DataType type;
  int top;        // the largest mantissa
  int point;      // mantissas are in steps of 2^-point
  float largest;  // the largest number
  int most;       // the largest exponent of a finite block
  size_t block_bytes;
};
constexpr Format kFormats[] = {{v1::INT8, 127, 6, 127 * 0x1p121f, 254, 17},
                               {v1::INT4, 7, 2, 7 * 0x1p125f, 254, 9},
                               {v1::INT2, 1, 0, 0x1p126f, 253, 5}};

class BlockIntTest : public testing::TestWithParam<Format> {
 protected:
  const Format f_ = GetParam();

  // The step of a block: the least power of two, 2^-126 or more, of which `top` reach to the largest number.
  double StepOf(const float* block) const {
    double largest = 0;
    for (size_t j = 0; j < kIntBlock; ++j) largest = std::max(largest, std::fabs(static_cast<double>(block[j])));
    double step = 0x1p-126;
    while (f_.top * step < largest) step *= 2;
    return step;
  }
  void Round(RoundingKey key, int64_t begin, absl::Span<float> io) const { RoundBlockInt(f_.type, key, begin, io); }
  void Sum(RoundingKey key, int64_t begin, absl::Span<float> into, absl::Span<const float> from) const {
    SumBlockInt(f_.type, key, begin, into, from);
  }
  void Pack(RoundingKey key, int64_t begin, absl::Span<const float> in, absl::Span<uint8_t> out) const {
    PackBlockInt(f_.type, key, begin, in, out);
  }
  std::vector<uint8_t> Packed(const std::vector<float>& numbers) const {
    std::vector<uint8_t> bytes(BlockIntBytes(f_.type, numbers.size()));
    PackBlockInt(f_.type, numbers, absl::MakeSpan(bytes));
    return bytes;
  }
  std::vector<float> Unpacked(const std::vector<uint8_t>& bytes) const {
    std::vector<float> numbers(bytes.size() / f_.block_bytes * kIntBlock);
    UnpackBlockInt(f_.type, bytes, absl::MakeSpan(numbers));
    return numbers;
  }
};
INSTANTIATE_TEST_SUITE_P(All, BlockIntTest, testing::ValuesIn(kFormats),
                         [](const auto& tested) { return v1::DataType_Name(tested.param.type); });

std::vector<float> Numbers(uint32_t seed, size_t blocks) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(blocks * kIntBlock);
  for (size_t b = 0; b < blocks; ++b) {
    const int exponent = static_cast<int>(random() % 230) - 115;
    for (size_t j = 0; j < kIntBlock; ++j) {
      numbers[b * kIntBlock + j] =
          random() % 9 == 0 ? 0 : std::ldexp(normal(random), exponent - static_cast<int>(random() % 12));
    }
  }
  return numbers;
}

TEST_P(BlockIntTest, RoundingTakesANeighbourAndRoundsNothingTwice) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    const std::vector<float> numbers = Numbers(seed, 300);
    std::vector<float> rounded = numbers;
    Round(RoundingKey::Of(seed, 3, 4, 2), 1600, absl::MakeSpan(rounded));
    for (size_t i = 0; i < numbers.size(); ++i) {
      const double step = StepOf(&numbers[i / kIntBlock * kIntBlock]), place = numbers[i] / step,
                   got = rounded[i] / step;
      ASSERT_TRUE(got == std::floor(place) || got == std::ceil(place))
          << i << ": " << numbers[i] << " became " << rounded[i] << ", step " << step;
      ASSERT_LE(std::fabs(got), f_.top);
    }
    for (const RoundingKey key :
         {RoundingKey::Of(seed, 3, 4, 2), RoundingKey::Of(seed, 3, 0, 8), RoundingKey::Of(1, 2, 3, 4)}) {
      std::vector<float> again = rounded;
      Round(key, 32, absl::MakeSpan(again));
      EXPECT_TRUE(SameBits(again, rounded)) << "what has been rounded";
      std::vector<uint8_t> bytes(BlockIntBytes(f_.type, numbers.size()));
      Pack(key, 32, rounded, absl::MakeSpan(bytes));
      EXPECT_EQ(bytes, Packed(rounded));
    }
    EXPECT_TRUE(SameBits(Unpacked(Packed(rounded)), rounded)) << "there and back";
    std::vector<uint8_t> at_once(BlockIntBytes(f_.type, numbers.size()) + 1);  // payloads are not aligned
    const auto odd = absl::MakeSpan(at_once).subspan(1);
    Pack(RoundingKey::Of(seed, 3, 4, 2), 1600, numbers, odd);
    std::vector<float> back(numbers.size());
    UnpackBlockInt(f_.type, odd, absl::MakeSpan(back));
    EXPECT_TRUE(SameBits(back, rounded)) << "rounded and packed in one";
  }
}

TEST_P(BlockIntTest, ASumIsAddedAndRounded) {
  const std::vector<float> left = Numbers(1, 200), right = Numbers(2, 200);
  std::vector<float> expected(left.size()), sum = left;
  for (size_t i = 0; i < left.size(); ++i) expected[i] = left[i] + right[i];
  Round(RoundingKey::Of(7, 8, 0, 2), 48, absl::MakeSpan(expected));
  Sum(RoundingKey::Of(7, 8, 0, 2), 48, absl::MakeSpan(sum), right);
  EXPECT_TRUE(SameBits(sum, expected));
}

// The mean over many updates is the number itself, and the spread is that of a coin with the place as its chance.
TEST_P(BlockIntTest, TheMeanOfManyDrawsIsTheNumber) {
  const std::vector<float> numbers = Numbers(5, 8);
  constexpr int kDraws = 20000;
  std::vector<double> sums(numbers.size());
  for (int draw = 0; draw < kDraws; ++draw) {
    std::vector<float> rounded = numbers;
    Round(RoundingKey::Of(11, static_cast<uint64_t>(draw), 0, 4), 320, absl::MakeSpan(rounded));
    for (size_t i = 0; i < numbers.size(); ++i) sums[i] += rounded[i];
  }
  for (size_t i = 0; i < numbers.size(); ++i) {
    const double step = StepOf(&numbers[i / kIntBlock * kIntBlock]), place = numbers[i] / step;
    const double up = place - std::floor(place), deviation = std::sqrt(up * (1 - up) / kDraws) + 0x1p-16;
    EXPECT_NEAR(sums[i] / kDraws / step, place, 5 * deviation) << i;
  }
}

// Draws of neighbours, nodes, updates and seeds are independent: pairs agree as often as chance predicts.
TEST_P(BlockIntTest, DrawsAreIndependent) {
  constexpr size_t kCount = 64 * 1024;
  std::vector<float> halves(kCount, 0.5f);
  for (size_t i = 0; i < kCount; i += kIntBlock) halves[i] = static_cast<float>(f_.top);  // steps of 1: a coin
  const auto ups = [&](RoundingKey key, int64_t begin) {
    std::vector<float> rounded = halves;
    Round(key, begin, absl::MakeSpan(rounded));
    return rounded;
  };
  const std::vector<float> base = ups(RoundingKey::Of(1, 1, 0, 4), 0);
  const auto expect_half = [&](const std::vector<float>& other, size_t shift, const char* what) {
    int64_t same = 0, all = 0;
    for (size_t i = 0; i + shift < kCount; ++i) {
      if (i % kIntBlock == 0 || (i + shift) % kIntBlock == 0) continue;
      ++all;
      same += base[i] == other[i + shift];
    }
    EXPECT_NEAR(static_cast<double>(same) / static_cast<double>(all), 0.5, 0.012)
        << what << " " << shift;  // 6 deviations
  };
  expect_half(ups(RoundingKey::Of(2, 1, 0, 4), 0), 0, "seed");
  expect_half(ups(RoundingKey::Of(1, 2, 0, 4), 0), 0, "update");
  expect_half(ups(RoundingKey::Of(1, 1, 4, 4), 0), 0, "node");
  expect_half(ups(RoundingKey::Of(1, 1, 0, 2), 0), 0, "node");
  expect_half(ups(RoundingKey::Of(1, 1, 0, 4), kCount), 0, "place");
  for (const size_t shift : {1, 2, 3, 8, 15, 16, 17, 32, 1024}) expect_half(base, shift, "distance");
}

TEST_P(BlockIntTest, TheBitsDoNotDependOnTheCut) {
  const std::vector<float> numbers = Numbers(9, 64);
  const RoundingKey key = RoundingKey::Of(3, 4, 5, 1);
  std::vector<float> whole = numbers, cut = numbers;
  Round(key, 160, absl::MakeSpan(whole));
  for (size_t at = 0; at < cut.size();) {
    const size_t count = std::min(cut.size() - at, (at / 16 % 5 + 1) * 16);
    Round(key, 160 + static_cast<int64_t>(at), absl::MakeSpan(cut).subspan(at, count));
    at += count;
  }
  EXPECT_TRUE(SameBits(whole, cut));
}

TEST_P(BlockIntTest, WhatIsNotFiniteSpoilsItsBlockAndNoOther) {
  for (const float odd :
       {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN(), std::bit_cast<float>(0xffffffffu),
        std::bit_cast<float>(0x7f800001u), std::numeric_limits<float>::max(), -std::nextafter(f_.largest, kInfinity)}) {
    for (size_t at : {0u, 7u, 15u}) {
      std::vector<float> numbers = Numbers(2, 3);
      numbers[16 + at] = odd;
      std::vector<float> rounded = numbers;
      Round(RoundingKey::Of(1, 2, 3, 4), 0, absl::MakeSpan(rounded));
      for (size_t i = 0; i < rounded.size(); ++i) EXPECT_EQ(std::isfinite(rounded[i]), i / 16 != 1) << odd << " " << i;
      EXPECT_TRUE(SameBits(Unpacked(Packed(rounded)), rounded));
      std::vector<float> sum(numbers.size());
      Sum(RoundingKey::Of(1, 2, 3, 4), 0, absl::MakeSpan(sum), numbers);
      EXPECT_TRUE(std::isnan(sum[16])) << odd;
      EXPECT_TRUE(std::isfinite(sum[15]) && std::isfinite(sum[32])) << odd;
    }
  }
}

TEST_P(BlockIntTest, TheEndsOfTheRange) {
  std::vector<float> zeros(16);
  zeros[3] = -0.0f;
  Round(RoundingKey::Of(1, 2, 3, 4), 0, absl::MakeSpan(zeros));
  EXPECT_TRUE(SameBits(zeros, std::vector<float>(16))) << "zeros have no sign";
  EXPECT_TRUE(SameBits(Unpacked(Packed(zeros)), zeros));

  std::vector<float> largest(16, f_.largest);
  largest[1] = -f_.largest;
  const std::vector<float> before = largest;
  Round(RoundingKey::Of(1, 2, 3, 4), 0, absl::MakeSpan(largest));
  EXPECT_TRUE(SameBits(largest, before));
  EXPECT_TRUE(SameBits(Unpacked(Packed(largest)), before));

  // Subnormal: 0 or 2^-126, and the mean is kept.
  double sum = 0;
  constexpr int kDraws = 4000;
  for (int draw = 0; draw < kDraws; ++draw) {
    std::vector<float> small(16, 0x1p-128f);
    Round(RoundingKey::Of(1, static_cast<uint64_t>(draw), 3, 4), 0, absl::MakeSpan(small));
    for (float f : small) {
      ASSERT_TRUE(f == 0 || f == 0x1p-126f) << f;
      sum += f / 0x1p-126f;
    }
  }
  EXPECT_NEAR(sum / (16 * kDraws), 0.25, 0.01);
}

// A peer may send any bytes: they have a meaning, and those that rounding changes are found.
TEST_P(BlockIntTest, AnyBytesHaveAMeaning) {
  const int bits = MantissaBitsOf(f_.type), codes = 1 << bits, in_byte = 8 / bits;
  const size_t mantissa_bytes = f_.block_bytes - 1;
  for (int exponent = 0; exponent < 256; ++exponent) {
    for (int first = 0; first < codes; first += 16) {
      for (const bool with_lowest : {true, false}) {
        std::vector<uint8_t> bytes(f_.block_bytes);
        bytes.back() = static_cast<uint8_t>(exponent);
        std::vector<int> mantissas(kIntBlock);
        bool foreign = exponent < 1 + f_.point || (exponent > f_.most && exponent != 255);
        for (size_t j = 0; j < kIntBlock; ++j) {
          const int code = (first + static_cast<int>(j)) % codes;  // two's complement
          mantissas[j] = code < codes / 2 ? code : code - codes;
          if (mantissas[j] < -f_.top && !with_lowest) mantissas[j] = f_.top;
          foreign = foreign || mantissas[j] < -f_.top;
          const int place = static_cast<int>(j / mantissa_bytes) % in_byte * bits;
          bytes[j % mantissa_bytes] |= static_cast<uint8_t>((mantissas[j] & (codes - 1)) << place);
        }
        SCOPED_TRACE(testing::Message() << "exponent " << exponent << ", codes from " << first << " " << with_lowest);
        const std::vector<float> numbers = Unpacked(bytes);
        for (size_t j = 0; j < kIntBlock; ++j) {
          if (exponent == 255) {
            ASSERT_TRUE(std::isnan(numbers[j]));
          } else {
            const double expected = std::ldexp(static_cast<double>(mantissas[j]), exponent - 127 - f_.point);
            ASSERT_EQ(numbers[j], static_cast<float>(expected)) << mantissas[j];
          }
        }
        ASSERT_EQ(IsPackedBlockInt(f_.type, bytes), !foreign);
        if (!foreign) {
          ASSERT_TRUE(SameBits(Unpacked(Packed(numbers)), numbers));
        }
        ASSERT_TRUE(IsPackedBlockInt(f_.type, Packed(numbers)));
      }
    }
  }
}

}  // namespace
}  // namespace cairn
