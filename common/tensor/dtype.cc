#include "common/tensor/dtype.h"

#include <bit>
#include <cstring>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/tensor/block_int.h"
#include "common/tensor/vectorize.h"

namespace cairn {
namespace {

// Branch-free, so that loops over it are vectorized: both values are computed and one is selected.
uint32_t Choose(bool first, uint32_t a, uint32_t b) {
  const uint32_t mask = 0u - static_cast<uint32_t>(first);
  return (a & mask) | (b & ~mask);
}

uint16_t ToBfloat16(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f);
  const uint32_t rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
  return static_cast<uint16_t>(Choose((u & 0x7fffffff) > 0x7f800000, (u >> 16) | 0x40, rounded));  // a quiet NaN
}

float FromBfloat16(uint16_t h) { return std::bit_cast<float>(static_cast<uint32_t>(h) << 16); }

uint16_t ToFloat16(float f) {
  // 2^-14; smaller numbers become subnormal: adding 0.5 leaves the rounded bits at the low end
  constexpr uint32_t kLeast = 0x38800000;
  const uint32_t u = std::bit_cast<uint32_t>(f);
  const uint32_t a = u & 0x7fffffff;
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(Choose(a < kLeast, a, kLeast)) + 0.5f) -
                             std::bit_cast<uint32_t>(0.5f);
  uint32_t h = (a - 0x38000000 + 0xfff + ((a >> 13) & 1)) >> 13;
  h = Choose(a < kLeast, subnormal, h);
  h = Choose(a >= 0x477ff000, 0x7c00, h);  // it would round to 65536 or more
  h = Choose(a > 0x7f800000, 0x7e00, h);
  return static_cast<uint16_t>(((u >> 16) & 0x8000) | h);
}

float FromFloat16(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16;
  const uint32_t exponent = (h >> 10) & 0x1f, mantissa = h & 0x3ff;
  const uint32_t subnormal = std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(mantissa)) * 0x1.0p-24f);
  uint32_t u = ((exponent + 112) << 23) | (mantissa << 13);
  u = Choose(exponent == 31, 0x7f800000 | (mantissa << 13), u);
  u = Choose(exponent == 0, subnormal, u);
  return std::bit_cast<float>(sign | u);
}

// From(To(f)) without conversion to 16 bits.
float RoundBfloat16(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f);
  const uint32_t rounded = u + 0x7fff + ((u >> 16) & 1);
  return std::bit_cast<float>(Choose((u & 0x7fffffff) > 0x7f800000, u | 0x400000, rounded) & 0xffff0000);
}

float RoundFloat16(float f) {
  constexpr uint32_t kLeast = 0x38800000;  // as above
  const uint32_t u = std::bit_cast<uint32_t>(f);
  const uint32_t a = u & 0x7fffffff;
  const uint32_t subnormal =
      std::bit_cast<uint32_t>((std::bit_cast<float>(Choose(a < kLeast, a, kLeast)) + 0.5f) - 0.5f);
  uint32_t r = (a + 0xfff + ((a >> 13) & 1)) & ~uint32_t{0x1fff};
  r = Choose(a < kLeast, subnormal, r);
  r = Choose(a >= 0x477ff000, 0x7f800000, r);
  r = Choose(a > 0x7f800000, 0x7fc00000, r);
  return std::bit_cast<float>((u & 0x80000000) | r);
}

CAIRN_VECTORIZED void RoundBfloat16s(float* __restrict io, size_t count) {
  for (size_t i = 0; i < count; ++i) io[i] = RoundBfloat16(io[i]);
}
CAIRN_VECTORIZED void RoundFloat16s(float* __restrict io, size_t count, float down, float up) {
  for (size_t i = 0; i < count; ++i) io[i] = RoundFloat16(io[i] * down) * up;
}
CAIRN_VECTORIZED void SumBfloat16s(float* __restrict into, const float* __restrict from, size_t count) {
  for (size_t i = 0; i < count; ++i) into[i] = RoundBfloat16(into[i] + from[i]);
}
CAIRN_VECTORIZED void SumFloat16s(float* __restrict into, const float* __restrict from, size_t count, float down,
                                  float up) {
  for (size_t i = 0; i < count; ++i) into[i] = RoundFloat16((into[i] + from[i]) * down) * up;
}
CAIRN_VECTORIZED void SumFloat32s(float* __restrict into, const float* __restrict from, size_t count) {
  for (size_t i = 0; i < count; ++i) into[i] += from[i];
}

// The 16-bit array may be unaligned.
CAIRN_VECTORIZED void ToBfloat16s(const float* __restrict in, size_t count, uint8_t* __restrict out) {
  for (size_t i = 0; i < count; ++i) {
    const uint16_t h = ToBfloat16(in[i]);
    std::memcpy(out + 2 * i, &h, 2);
  }
}
CAIRN_VECTORIZED void ToFloat16s(const float* __restrict in, size_t count, uint8_t* __restrict out, float down) {
  for (size_t i = 0; i < count; ++i) {
    const uint16_t h = ToFloat16(in[i] * down);
    std::memcpy(out + 2 * i, &h, 2);
  }
}
CAIRN_VECTORIZED void FromBfloat16s(const uint8_t* __restrict in, size_t count, float* __restrict out) {
  for (size_t i = 0; i < count; ++i) {
    uint16_t h;
    std::memcpy(&h, in + 2 * i, 2);
    out[i] = FromBfloat16(h);
  }
}
CAIRN_VECTORIZED void FromFloat16s(const uint8_t* __restrict in, size_t count, float* __restrict out) {
  for (size_t i = 0; i < count; ++i) {
    uint16_t h;
    std::memcpy(&h, in + 2 * i, 2);
    out[i] = FromFloat16(h);
  }
}
CAIRN_VECTORIZED void FromShiftedFloat16s(const uint8_t* __restrict in, size_t count, float* __restrict out, float up) {
  for (size_t i = 0; i < count; ++i) {
    uint16_t h;
    std::memcpy(&h, in + 2 * i, 2);
    out[i] = FromFloat16(h) * up;
  }
}

float PowerOfTwo(int exponent) {
  CAIRN_CHECK(-kFloat16ShiftMax <= exponent && exponent <= kFloat16ShiftMax, "FLOAT16: no such shift");
  return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
}

}  // namespace

size_t SizeOf(v1::DataType type) {
  switch (type) {
    case v1::FLOAT32: return 4;
    case v1::BFLOAT16:
    case v1::FLOAT16: return 2;
    default: return 0;
  }
}

size_t BytesOf(v1::DataType type, size_t numbers) {
  return IsBlockInt(type) ? BlockIntBytes(type, numbers) : numbers * SizeOf(type);
}

void FromFloat(absl::Span<const float> in, v1::DataType type, absl::Span<uint8_t> out, int shift) {
  CAIRN_CHECK(out.size() == BytesOf(type, in.size()), "FromFloat: sizes differ");
  if (in.empty()) return;
  CAIRN_CHECK(!out.empty(), "FromFloat: no such type");
  if (type == v1::FLOAT32) {
    std::memcpy(out.data(), in.data(), out.size());
    return;
  }
  if (IsBlockInt(type)) return PackBlockInt(type, in, out);
  if (type == v1::BFLOAT16) return ToBfloat16s(in.data(), in.size(), out.data());
  ToFloat16s(in.data(), in.size(), out.data(), PowerOfTwo(-shift));
}

void ToFloat(absl::Span<const uint8_t> in, v1::DataType type, absl::Span<float> out, int shift) {
  CAIRN_CHECK(in.size() == BytesOf(type, out.size()), "ToFloat: sizes differ");
  if (out.empty()) return;
  CAIRN_CHECK(!in.empty(), "ToFloat: no such type");
  if (type == v1::FLOAT32) {
    std::memcpy(out.data(), in.data(), in.size());
    return;
  }
  if (IsBlockInt(type)) return UnpackBlockInt(type, in, out);
  if (type == v1::BFLOAT16) return FromBfloat16s(in.data(), out.size(), out.data());
  if (shift == 0)
    // a multiplication would change the bits of a signalling NaN
    return FromFloat16s(in.data(), out.size(), out.data());
  FromShiftedFloat16s(in.data(), out.size(), out.data(), PowerOfTwo(shift));
}

void RoundTo(v1::DataType type, absl::Span<float> numbers, int shift) {
  CAIRN_CHECK(SizeOf(type) > 0, "RoundTo: not such a type");
  if (type == v1::FLOAT32) return;
  if (type == v1::BFLOAT16) return RoundBfloat16s(numbers.data(), numbers.size());
  RoundFloat16s(numbers.data(), numbers.size(), PowerOfTwo(-shift), PowerOfTwo(shift));
}

void SumRounded(v1::DataType type, absl::Span<float> into, absl::Span<const float> from, int shift) {
  CAIRN_CHECK(into.size() == from.size(), "gradients of different sizes");
  CAIRN_CHECK(SizeOf(type) > 0, "SumRounded: not such a type");
  if (type == v1::FLOAT16)
    return SumFloat16s(into.data(), from.data(), into.size(), PowerOfTwo(-shift), PowerOfTwo(shift));
  (type == v1::FLOAT32 ? SumFloat32s : SumBfloat16s)(into.data(), from.data(), into.size());
}

}  // namespace cairn
