#include "common/tensor/dtype.h"

#include <bit>
#include <cstring>

#include "common/base/check.h"

namespace cairn {
namespace {

uint16_t ToBfloat16(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f);
  if ((u & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>((u >> 16) | 0x40);  // a quiet NaN
  return static_cast<uint16_t>((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

float FromBfloat16(uint16_t h) { return std::bit_cast<float>(static_cast<uint32_t>(h) << 16); }

uint16_t ToFloat16(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f);
  const uint16_t sign = static_cast<uint16_t>((u >> 16) & 0x8000);
  const uint32_t a = u & 0x7fffffff;
  if (a > 0x7f800000) return sign | 0x7e00;
  if (a >= 0x477ff000) return sign | 0x7c00;  // rounds to 65536 or more
  if (a < 0x38800000) {                       // below 2^-14: subnormal; adding 0.5 leaves the rounded bits at the end
    const float r = std::bit_cast<float>(a) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(r) - std::bit_cast<uint32_t>(0.5f)));
  }
  return static_cast<uint16_t>(sign | ((a - 0x38000000 + 0xfff + ((a >> 13) & 1)) >> 13));
}

float FromFloat16(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16;
  const uint32_t exponent = (h >> 10) & 0x1f, mantissa = h & 0x3ff;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | (mantissa << 13));
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1.0p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
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

void FromFloat(absl::Span<const float> in, v1::DataType type, absl::Span<uint8_t> out) {
  CAIRN_CHECK(out.size() == in.size() * SizeOf(type), "FromFloat: sizes differ");
  if (in.empty()) return;
  if (type == v1::FLOAT32) {
    std::memcpy(out.data(), in.data(), out.size());
    return;
  }
  uint16_t* to = reinterpret_cast<uint16_t*>(out.data());
  if (type == v1::BFLOAT16) {
    for (size_t i = 0; i < in.size(); ++i) to[i] = ToBfloat16(in[i]);
  } else {
    for (size_t i = 0; i < in.size(); ++i) to[i] = ToFloat16(in[i]);
  }
}

void ToFloat(absl::Span<const uint8_t> in, v1::DataType type, absl::Span<float> out) {
  CAIRN_CHECK(in.size() == out.size() * SizeOf(type), "ToFloat: sizes differ");
  if (out.empty()) return;
  if (type == v1::FLOAT32) {
    std::memcpy(out.data(), in.data(), in.size());
    return;
  }
  for (size_t i = 0; i < out.size(); ++i) {
    uint16_t h;
    std::memcpy(&h, in.data() + 2 * i, 2);
    out[i] = type == v1::BFLOAT16 ? FromBfloat16(h) : FromFloat16(h);
  }
}

}  // namespace cairn
