// Goal: conversions between float32 and the 16-bit types, exhaustively: each 16-bit number survives the way up and
// down, and each float goes to the nearest of them, ties to even.
#include "common/tensor/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace cairn {
namespace {

uint16_t Down(float f, v1::DataType type) {
  uint16_t h;
  FromFloat({&f, 1}, type, absl::MakeSpan(reinterpret_cast<uint8_t*>(&h), 2));
  return h;
}

float Up(uint16_t h, v1::DataType type) {
  float f;
  ToFloat({reinterpret_cast<const uint8_t*>(&h), 2}, type, {&f, 1});
  return f;
}

// The value of the bits, from the definition of the formats.
double Meaning(uint16_t h, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const double sign = h >> 15 ? -1 : 1;
  const int exponent = (h >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const double mantissa = static_cast<double>(h & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits);
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias);
  return sign * std::ldexp(1 + mantissa, exponent - bias);
}

class SixteenBits : public testing::TestWithParam<v1::DataType> {
 protected:
  int exponent_bits() const { return GetParam() == v1::BFLOAT16 ? 8 : 5; }
};

TEST_P(SixteenBits, EachNumberMeansWhatTheFormatSays) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const uint16_t h = static_cast<uint16_t>(i);
    const double want = Meaning(h, exponent_bits());
    const float got = Up(h, GetParam());
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(got)) << i;
      ASSERT_TRUE(std::isnan(Up(Down(got, GetParam()), GetParam()))) << i;
    } else {
      ASSERT_EQ(static_cast<double>(got), want) << i;
      ASSERT_EQ(std::signbit(got), i >> 15 == 1) << i;
      ASSERT_EQ(Down(got, GetParam()), h) << "there and back: " << i;
    }
  }
}

// Between each two neighbours: just below the middle goes down, the middle to the even one, just above up.
TEST_P(SixteenBits, RoundsToNearestTiesToEven) {
  const uint16_t infinity = static_cast<uint16_t>(((1 << exponent_bits()) - 1) << (15 - exponent_bits()));
  for (uint32_t i = 0; i + 1 < infinity; ++i) {
    const uint16_t low = static_cast<uint16_t>(i), high = static_cast<uint16_t>(i + 1);
    const float a = Up(low, GetParam()), b = Up(high, GetParam());
    const float middle = static_cast<float>((static_cast<double>(a) + b) / 2);  // exact: one more bit
    if (middle == a || middle == b) continue;                                   // float32's own subnormals
    ASSERT_EQ(Down(middle, GetParam()), low % 2 == 0 ? low : high) << i;
    ASSERT_EQ(Down(std::nextafter(middle, a), GetParam()), low) << i;
    ASSERT_EQ(Down(std::nextafter(middle, b), GetParam()), high) << i;
    ASSERT_EQ(Down(-middle, GetParam()), (low % 2 == 0 ? low : high) | 0x8000) << i;
  }
}

TEST_P(SixteenBits, OverflowIsInfinity) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Up(Down(std::numeric_limits<float>::max(), GetParam()), GetParam()), inf);
  EXPECT_EQ(Up(Down(-std::numeric_limits<float>::max(), GetParam()), GetParam()), -inf);
  EXPECT_EQ(Up(Down(inf, GetParam()), GetParam()), inf);
  if (GetParam() == v1::FLOAT16) {
    EXPECT_EQ(Up(Down(65519.996f, v1::FLOAT16), v1::FLOAT16), 65504.0f);
    EXPECT_EQ(Up(Down(65520.0f, v1::FLOAT16), v1::FLOAT16), inf);
  }
}

// Loops over many numbers use other code than single ones: vectors, and the rest after them.
TEST_P(SixteenBits, ManyAsEachAlone) {
  std::mt19937 random(11);
  std::vector<float> floats(66000);
  for (size_t i = 0; i < floats.size(); ++i)
    floats[i] =
        i < 65536 ? Up(static_cast<uint16_t>(i), GetParam()) : std::bit_cast<float>(static_cast<uint32_t>(random()));
  for (size_t i = 0; i < floats.size(); i += 3)
    floats[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(floats[i]) + static_cast<uint32_t>(random() % 65536));
  for (const size_t count : {1u, 2u, 7u, 8u, 15u, 16u, 17u, 31u, 33u, 63u, 100u, 65999u}) {
    std::vector<uint8_t> wire(2 * count + 1);
    const auto odd = absl::MakeSpan(wire).subspan(1);  // payloads are not aligned
    for (const size_t first : {size_t{0}, floats.size() - count}) {
      FromFloat({floats.data() + first, count}, GetParam(), odd);
      std::vector<float> back(count);
      ToFloat(odd, GetParam(), absl::MakeSpan(back));
      for (size_t i = 0; i < count; ++i) {
        const uint16_t h = Down(floats[first + i], GetParam());
        ASSERT_EQ(std::memcmp(&odd[2 * i], &h, 2), 0) << count << ": " << first + i;
        ASSERT_EQ(std::bit_cast<uint32_t>(back[i]), std::bit_cast<uint32_t>(Up(h, GetParam())))
            << count << ": " << first + i;
      }
    }
  }
}

TEST_P(SixteenBits, RoundToIsTheWayDownAndUp) {
  std::mt19937 random(13);
  std::vector<float> numbers(300000), from(numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = i < 65536 ? std::bit_cast<float>(static_cast<uint32_t>(i << 16))
                           : std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (i % 3 == 0)
      numbers[i] =
          std::bit_cast<float>(static_cast<uint32_t>(0x33000000 + random() % 0x14800000));  // of float16's range
    from[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(numbers[i]) ^ static_cast<uint32_t>(random() % 0x1000000));
  }
  std::vector<float> rounded = numbers, sums = numbers;
  RoundTo(GetParam(), absl::MakeSpan(rounded));
  SumRounded(GetParam(), absl::MakeSpan(sums), from);
  for (size_t i = 0; i < numbers.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(rounded[i]),
              std::bit_cast<uint32_t>(Up(Down(numbers[i], GetParam()), GetParam())))
        << i;
    const float sum = numbers[i] + from[i];
    if (std::isnan(sum)) {
      ASSERT_TRUE(std::isnan(sums[i])) << i;  // which of two NaN it is, is the processor's choice
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(sums[i]), std::bit_cast<uint32_t>(Up(Down(sum, GetParam()), GetParam()))) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SixteenBits, testing::Values(v1::BFLOAT16, v1::FLOAT16),
                         [](const auto& info) { return v1::DataType_Name(info.param); });

TEST(Dtype, Float32IsCopiedBitForBit) {
  std::mt19937 random(7);
  std::vector<float> in(1000), out(1000);
  for (float& f : in) f = std::bit_cast<float>(static_cast<uint32_t>(random()));
  std::vector<uint8_t> wire(4000);
  FromFloat(in, v1::FLOAT32, absl::MakeSpan(wire));
  ToFloat(wire, v1::FLOAT32, absl::MakeSpan(out));
  for (size_t i = 0; i < in.size(); ++i) EXPECT_EQ(std::bit_cast<uint32_t>(in[i]), std::bit_cast<uint32_t>(out[i]));
}

TEST(Dtype, Sizes) {
  EXPECT_EQ(SizeOf(v1::FLOAT32), 4u);
  EXPECT_EQ(SizeOf(v1::BFLOAT16), 2u);
  EXPECT_EQ(SizeOf(v1::FLOAT16), 2u);
  EXPECT_EQ(SizeOf(v1::INT8), 0u);
  EXPECT_EQ(SizeOf(v1::DATA_TYPE_UNSPECIFIED), 0u);
  EXPECT_EQ(BytesOf(v1::FLOAT32, 48), 192u);
  EXPECT_EQ(BytesOf(v1::FLOAT16, 48), 96u);
  EXPECT_EQ(BytesOf(v1::INT8, 48), 51u);
  EXPECT_EQ(BytesOf(v1::INT4, 48), 27u);
  EXPECT_EQ(BytesOf(v1::INT2, 48), 15u);
  EXPECT_EQ(BytesOf(static_cast<v1::DataType>(99), 48), 0u);
  EXPECT_EQ(SizeOf(static_cast<v1::DataType>(99)), 0u);
}

}  // namespace
}  // namespace cairn
