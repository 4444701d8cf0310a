// Goal: numbers of FLOAT16 travel shifted, so that sums over many examples fit; moving averages travel as BFLOAT16
// beside FLOAT16 and blocks; any part of the space is rounded and packed like the whole; bytes that nobody can have
// packed are detected.
#include "common/tensor/gradient_rounding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "common/tensor/block_int.h"
#include "common/tensor/dtype.h"
#include "common/tensor/summation_tree.h"
#include "tests/unit/tensor/same_bits.h"

namespace cairn {
namespace {

constexpr v1::DataType kTypes[] = {v1::FLOAT32, v1::BFLOAT16, v1::FLOAT16, v1::INT8, v1::INT4, v1::INT2};
const GradientLayout kLayout = {11, {{16, 48}, {96, 112}, {112, 128}, {160, 176}}};
constexpr TreeNode kNode = {2, 2};

std::vector<float> Random(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(n);
  for (float& f : numbers) f = normal(random) * std::pow(10.0f, static_cast<float>(random() % 6));
  return numbers;
}

bool IsAverage(size_t i) { return (i >= 16 && i < 48) || (i >= 96 && i < 128) || (i >= 160 && i < 176); }

std::vector<float> Rounded(GradientRounding rounding, std::vector<float> numbers) {
  RoundGradient(rounding, kNode, absl::MakeSpan(numbers));
  return numbers;
}

TEST(GradientRounding, TheSumOverManyExamplesFitsIntoFloat16) {
  const GradientRounding rounding = {v1::FLOAT16, 0, 0, 0, &kLayout};
  std::vector<float> sums(32, 65504 * 2047.0f), more = sums;
  sums[1] = 0x1p-13f;   // 2^-24 of 2^11
  sums[2] = -0x1p-15f;  // below
  sums[3] = 65520 * 2048.0f;
  const std::vector<float> rounded = Rounded(rounding, sums);
  EXPECT_NEAR(rounded[0], sums[0], sums[0] / 2048);
  EXPECT_EQ(rounded[1], sums[1]);
  EXPECT_EQ(rounded[2], 0);
  EXPECT_TRUE(std::signbit(rounded[2]));
  EXPECT_EQ(rounded[3], INFINITY) << "a mean gradient that FLOAT16 does not have";
  SumInto(rounding, kNode, absl::MakeSpan(more), std::vector<float>(32, 2048));
  EXPECT_TRUE(std::isfinite(more[0]));
}

TEST(GradientRounding, AveragesAreBfloat16BesideFloat16AndBlocks) {
  const std::vector<float> numbers = Random(192, 1);
  for (const v1::DataType type : kTypes) {
    const GradientRounding rounding = {type, 5, 3, 0, &kLayout};
    const bool two = type == v1::FLOAT16 || IsBlockInt(type);
    std::vector<float> averages = numbers, others = numbers;
    RoundTo(two ? v1::BFLOAT16 : v1::FLOAT32, absl::MakeSpan(averages));
    const GradientLayout shift = {11, {}};
    RoundGradient({type, 5, 3, 0, &shift}, kNode, absl::MakeSpan(others));
    const std::vector<float> rounded = Rounded(rounding, numbers);
    for (size_t i = 0; i < numbers.size(); ++i)
      EXPECT_EQ(rounded[i], two && IsAverage(i) ? averages[i] : others[i]) << type << " " << i;
    EXPECT_TRUE(SameBits(Rounded({type, 6, 7, 0, &kLayout}, rounded), rounded)) << "rounded again";

    std::vector<float> left = rounded, sum = rounded;
    const std::vector<float> right = Rounded(rounding, Random(192, 2));
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += right[i];
    SumInto(rounding, kNode, absl::MakeSpan(left), right);
    EXPECT_TRUE(SameBits(left, Rounded(rounding, sum)));
  }
  EXPECT_EQ(PackedBytes({v1::INT8, 0, 0, 0, &kLayout}, 192), 192 / 16 * 17 + 80 / 16 * 15u);
  EXPECT_EQ(PackedBytes({v1::FLOAT16, 0, 0, 0, &kLayout}, 192), 384u);
  EXPECT_EQ(PackedBytes({v1::FLOAT32, 0, 0, 0, &kLayout}, 192), 768u);
  EXPECT_EQ(PackedBytes({static_cast<v1::DataType>(99), 0, 0, 0, &kLayout}, 192), 0u);
  EXPECT_EQ(PackedBytes({v1::INT8}, 192), BlockIntBytes(v1::INT8, 192));
}

TEST(GradientRounding, AnyPartIsRoundedAndPackedAsTheWhole) {
  const std::vector<float> numbers = Random(192, 3);
  for (const v1::DataType type : kTypes) {
    const GradientRounding whole = {type, 5, 3, 0, &kLayout};
    const std::vector<float> rounded = Rounded(whole, numbers);
    for (size_t begin = 0; begin < 192; begin += 16) {
      for (size_t end = begin + 16; end <= 192; end += 16) {
        const std::vector<float> part(numbers.begin() + begin, numbers.begin() + end);
        const std::vector<float> expected(rounded.begin() + begin, rounded.begin() + end);
        const GradientRounding rounding = whole.From(static_cast<int64_t>(begin));
        ASSERT_TRUE(SameBits(Rounded(rounding, part), expected)) << type << " [" << begin << "," << end << ")";
        std::vector<uint8_t> bytes(PackedBytes(rounding, part.size()) + 1);
        const absl::Span<uint8_t> odd = absl::MakeSpan(bytes).subspan(1);
        PackRounded(rounding, kNode, part, odd);
        std::vector<float> back(part.size());
        UnpackRounded(rounding, odd, absl::MakeSpan(back));
        ASSERT_TRUE(SameBits(back, expected)) << type << " [" << begin << "," << end << ")";
        ASSERT_TRUE(IsRounded(rounding, odd, part.size()));
      }
    }
  }
}

TEST(GradientRounding, ValuesAreRoundedToNearestAndNotShifted) {
  const std::vector<float> numbers = Random(192, 6);
  for (const v1::DataType type : {v1::FLOAT32, v1::BFLOAT16, v1::FLOAT16, v1::INT8}) {
    const GradientRounding whole = ValuesRounding(type, 0, kLayout);
    std::vector<float> rounded = numbers, again, averages = numbers;
    RoundNearest(whole, absl::MakeSpan(rounded));
    again = rounded;
    RoundNearest(whole, absl::MakeSpan(again));
    EXPECT_TRUE(SameBits(again, rounded)) << type;
    RoundTo(type == v1::INT8 ? v1::BFLOAT16 : type, absl::MakeSpan(averages));
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (type == v1::INT8 && !IsAverage(i)) continue;
      EXPECT_EQ(rounded[i], averages[i]) << type << " " << i;
    }
    // A part, as a partition of the space sends it.
    const GradientRounding part = ValuesRounding(type, 32, kLayout);
    std::vector<uint8_t> bytes(PackedBytes(part, 128));
    PackNearest(part, absl::MakeSpan(numbers).subspan(32, 128), absl::MakeSpan(bytes));
    std::vector<float> back(128);
    UnpackRounded(part, bytes, absl::MakeSpan(back));
    EXPECT_TRUE(SameBits(back, {rounded.begin() + 32, rounded.begin() + 160})) << type;
  }
}

TEST(GradientRounding, Int8ThatNobodyPackedIsFound) {
  const GradientRounding rounding = {v1::INT8, 5, 3, 0, &kLayout};
  std::vector<uint8_t> bytes(PackedBytes(rounding, 64));
  PackRounded(rounding, kNode, Random(64, 4), absl::MakeSpan(bytes));
  // 17 bytes, 32 BFLOAT16, 17 bytes.
  for (size_t i = 0; i < bytes.size(); ++i) {
    const uint8_t was = bytes[i];
    const bool average = i >= 17 && i < 81, exponent = i == 16 || i == 97;
    bytes[i] = 0x80;
    EXPECT_EQ(IsRounded(rounding, bytes, 64), average || exponent) << i;
    bytes[i] = 6;
    EXPECT_EQ(IsRounded(rounding, bytes, 64), !exponent) << i;
    bytes[i] = 255;
    EXPECT_TRUE(IsRounded(rounding, bytes, 64)) << i;
    bytes[i] = was;
  }
}

}  // namespace
}  // namespace cairn
