#include "common/tensor/block_int8.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "common/base/check.h"
#include "common/tensor/vectorize.h"

namespace cairn {
namespace {

constexpr size_t kB = kInt8Block;
constexpr uint32_t kNotFinite = 255;
constexpr uint32_t kLeastExponent = 7;  // steps of 2^-126, the smallest whose inverse is a normal number
constexpr int kFractionBits = 15;       // of a step; 127 * 2^15 < 2^22, within the range of kSnap
constexpr float kSnap = 0x1.8p23f;      // f + kSnap has f, rounded to an integer, in its low bits

// SplitMix64's finalizer (Steele et al. 2014).
uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// 64 random bits per block, from which each of its 16 numbers derives its own by two multiplications, as in Wellons'
// lowbias32.
struct Draws {
  uint32_t low = 0, high = 0;
  Draws() = default;
  Draws(Int8Key key, uint64_t block) {
    const uint64_t z = Mix(key.bits + 0x9e3779b97f4a7c15u * (block + 1));
    low = static_cast<uint32_t>(z);
    high = static_cast<uint32_t>(z >> 32);
  }
};

// The scale of a block: its exponent byte, and 2^-k for steps of 2^k.
struct Scale {
  uint32_t exponent = 0;
  float step = 0, inverse = 0;
};
Scale ScaleOf(uint32_t largest) {  // largest: the bits of the largest magnitude
  // Up to 127/64 * 2^n the exponent is n; larger numbers round up to the next one.
  const uint32_t e = std::clamp((largest + 0x1ffff) >> 23, kLeastExponent, kNotFinite);
  const uint32_t shown = std::min(e, kNotFinite - 1);
  return {e, std::bit_cast<float>((shown - 6) << 23), std::bit_cast<float>((260 - shown) << 23)};
}

// What is added to a mantissa, in steps of 2^-15, before it is truncated.
enum class Up { kAtRandom, kNearest };

inline __attribute__((always_inline)) uint32_t LargestOf(const float* in) {
  uint32_t largest = 0;
  for (size_t j = 0; j < kB; ++j) {
    uint32_t u;
    std::memcpy(&u, in + j, 4);
    u &= 0x7fffffff;
    largest = u > largest ? u : largest;
  }
  return largest;
}

// Quantizes one block, in steps of its scale.
template <Up up>
inline __attribute__((always_inline)) void MantissasOf(const float* in, float inverse, Draws draws, int32_t* out) {
  for (uint32_t j = 0; j < kB; ++j) {
    const float snapped = in[j] * inverse * static_cast<float>(1 << kFractionBits) + kSnap;
    const uint32_t fixed = std::bit_cast<uint32_t>(snapped) - std::bit_cast<uint32_t>(kSnap);
    uint32_t v = 1u << (kFractionBits - 1);
    if (up == Up::kAtRandom) {
      v = draws.low + j * 0x9e3779b9u;
      v = (v ^ (v >> 16)) * 0x7feb352du;
      v = (v ^ (v >> 15) ^ draws.high) * 0x846ca68bu;
      v >>= 32 - kFractionBits;
    }
    out[j] = static_cast<int32_t>(fixed + v) >> kFractionBits;
  }
}

inline __attribute__((always_inline)) void RoundBlock(Int8Key key, uint64_t block, const float* in, float* out) {
  const Scale scale = ScaleOf(LargestOf(in));
  int32_t mantissas[kB];
  MantissasOf<Up::kAtRandom>(in, scale.inverse, Draws(key, block), mantissas);
  const uint32_t spoiled = scale.exponent == kNotFinite ? 0xffffffffu : 0;
  for (size_t j = 0; j < kB; ++j) {
    const uint32_t u = std::bit_cast<uint32_t>(static_cast<float>(mantissas[j]) * scale.step);
    out[j] = std::bit_cast<float>((u & ~spoiled) | (0x7fc00000 & spoiled));
  }
}

CAIRN_VECTORIZED void RoundBlocks(Int8Key key, uint64_t block, float* io, size_t blocks) {
  for (size_t b = 0; b < blocks; ++b) RoundBlock(key, block + b, io + b * kB, io + b * kB);
}

CAIRN_VECTORIZED void SumBlocks(Int8Key key, uint64_t block, float* __restrict into, const float* __restrict from,
                                size_t blocks) {
  for (size_t b = 0; b < blocks; ++b, into += kB, from += kB) {
    float sum[kB];
    for (size_t j = 0; j < kB; ++j) sum[j] = into[j] + from[j];
    RoundBlock(key, block + b, sum, into);
  }
}

template <Up up>
inline __attribute__((always_inline)) void PackLoop(Int8Key key, uint64_t block, const float* __restrict in,
                                                    size_t blocks, uint8_t* __restrict mantissas,
                                                    uint8_t* __restrict exponents) {
  for (size_t b = 0; b < blocks; ++b, in += kB, mantissas += kB) {
    const Scale scale = ScaleOf(LargestOf(in));
    int32_t wide[kB];
    MantissasOf<up>(in, scale.inverse, up == Up::kAtRandom ? Draws(key, block + b) : Draws(), wide);
    const int32_t kept = scale.exponent == kNotFinite ? 0 : -1;
    for (size_t j = 0; j < kB; ++j) mantissas[j] = static_cast<uint8_t>(wide[j] & kept);
    exponents[b] = static_cast<uint8_t>(scale.exponent);
  }
}
CAIRN_VECTORIZED void PackBlocks(Int8Key key, uint64_t block, const float* __restrict in, size_t blocks,
                                 uint8_t* __restrict mantissas, uint8_t* __restrict exponents) {
  PackLoop<Up::kAtRandom>(key, block, in, blocks, mantissas, exponents);
}
CAIRN_VECTORIZED void PackNearest(const float* __restrict in, size_t blocks, uint8_t* __restrict mantissas,
                                  uint8_t* __restrict exponents) {
  PackLoop<Up::kNearest>({}, 0, in, blocks, mantissas, exponents);
}

CAIRN_VECTORIZED void UnpackBlocks(const uint8_t* __restrict mantissas, const uint8_t* __restrict exponents,
                                   size_t blocks, float* __restrict out) {
  for (size_t b = 0; b < blocks; ++b, mantissas += kB, out += kB) {
    const uint32_t e = exponents[b];
    const uint32_t bits = e >= kLeastExponent ? (e - 6) << 23 : 1u << (16 + e);  // 2^(e - 133), subnormal below 7
    const float step = std::bit_cast<float>(e == kNotFinite ? 0x7fc00000 : bits);
    for (size_t j = 0; j < kB; ++j) out[j] = static_cast<float>(static_cast<int8_t>(mantissas[j])) * step;
  }
}

CAIRN_VECTORIZED bool AnyForeign(const int8_t* __restrict mantissas, size_t count, const uint8_t* __restrict exponents,
                                 size_t blocks) {
  uint8_t any = 0;
  for (size_t i = 0; i < count; ++i) any |= static_cast<uint8_t>(mantissas[i] == -128);
  for (size_t b = 0; b < blocks; ++b) any |= static_cast<uint8_t>(exponents[b] < kLeastExponent);
  return any != 0;
}

uint64_t BlockOf(int64_t begin, size_t numbers) {
  CAIRN_CHECK(numbers % kB == 0 && begin % static_cast<int64_t>(kB) == 0, "INT8 is of whole blocks");
  return static_cast<uint64_t>(begin) / kB;
}

}  // namespace

Int8Key Int8Key::Of(uint64_t seed, uint64_t sequence, uint32_t first, uint32_t count) {
  return {Mix(Mix(Mix(seed + 0x9e3779b97f4a7c15u) ^ sequence) ^ (uint64_t{first} << 32 | count))};
}

void RoundInt8(Int8Key key, int64_t begin, absl::Span<float> io) {
  RoundBlocks(key, BlockOf(begin, io.size()), io.data(), io.size() / kB);
}

void SumRoundedInt8(Int8Key key, int64_t begin, absl::Span<float> into, absl::Span<const float> from) {
  CAIRN_CHECK(into.size() == from.size(), "gradients of different sizes");
  SumBlocks(key, BlockOf(begin, into.size()), into.data(), from.data(), into.size() / kB);
}

void PackInt8(Int8Key key, int64_t begin, absl::Span<const float> in, absl::Span<uint8_t> out) {
  CAIRN_CHECK(out.size() == Int8BytesOf(in.size()), "PackInt8: sizes differ");
  PackBlocks(key, BlockOf(begin, in.size()), in.data(), in.size() / kB, out.data(), out.data() + in.size());
}

void PackInt8(absl::Span<const float> in, absl::Span<uint8_t> out) {
  CAIRN_CHECK(out.size() == Int8BytesOf(in.size()) && in.size() % kB == 0, "PackInt8: sizes differ");
  PackNearest(in.data(), in.size() / kB, out.data(), out.data() + in.size());
}

void UnpackInt8(absl::Span<const uint8_t> in, absl::Span<float> out) {
  CAIRN_CHECK(in.size() == Int8BytesOf(out.size()) && out.size() % kB == 0, "UnpackInt8: sizes differ");
  UnpackBlocks(in.data(), in.data() + out.size(), out.size() / kB, out.data());
}

bool IsPackedInt8(absl::Span<const uint8_t> in) {
  const size_t blocks = in.size() / (kB + 1);
  CAIRN_CHECK(in.size() == blocks * (kB + 1), "IsPackedInt8: not of whole blocks");
  return !AnyForeign(reinterpret_cast<const int8_t*>(in.data()), blocks * kB, in.data() + blocks * kB, blocks);
}

}  // namespace cairn
