#include "common/tensor/block_int.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "common/base/check.h"
#include "common/tensor/vectorize.h"

#define CAIRN_INLINE inline __attribute__((always_inline))

namespace cairn {
namespace {

constexpr size_t kB = kIntBlock;
constexpr uint32_t kNotFinite = 255;
constexpr int kRandomBits = 15;     // of a step; 127 * 2^15 < 2^22, within the range of kSnap
constexpr float kSnap = 0x1.8p23f;  // f + kSnap has f, rounded to an integer, in its low bits

// The format with mantissas of w bits.
template <int w>
struct Format {
  static constexpr uint32_t kPoint = w - 2;       // mantissas are in steps of 2^-kPoint
  static constexpr uint32_t kLeast = 1 + kPoint;  // steps of 2^-126, the smallest whose inverse is a normal number
  static constexpr uint32_t kMost = std::min(254u, 252 + kLeast);  // the inverse of its step is a normal number, too
  static constexpr uint32_t kPast = (1u << (23 - kPoint)) - 1;     // carries above top * 2^-kPoint
  static constexpr size_t kBytes = kB * w / 8;                     // of a block's mantissas
  static constexpr int kShare = 8 / w;                             // mantissas in a byte
};

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
  Draws(RoundingKey key, uint64_t block) {
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
template <int w>
CAIRN_INLINE Scale ScaleOf(uint32_t largest) {  // largest: the bits of the largest magnitude
  using F = Format<w>;
  // Up to top / 2^kPoint * 2^n the exponent is n; larger numbers round up to the next one.
  const uint32_t e = std::max((largest + F::kPast) >> 23, F::kLeast);
  const uint32_t shown = std::min(e, F::kMost);
  return {e > F::kMost ? kNotFinite : e, std::bit_cast<float>((shown - F::kPoint) << 23),
          std::bit_cast<float>((254 + F::kPoint - shown) << 23)};
}

// What is added to a mantissa, in steps of 2^-15, before it is truncated.
enum class Up { kAtRandom, kNearest };

CAIRN_INLINE uint32_t LargestOf(const float* in) {
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
CAIRN_INLINE void MantissasOf(const float* in, float inverse, Draws draws, int32_t* out) {
  for (uint32_t j = 0; j < kB; ++j) {
    const float snapped = in[j] * inverse * static_cast<float>(1 << kRandomBits) + kSnap;
    const uint32_t fixed = std::bit_cast<uint32_t>(snapped) - std::bit_cast<uint32_t>(kSnap);
    uint32_t v = 1u << (kRandomBits - 1);
    if (up == Up::kAtRandom) {
      v = draws.low + j * 0x9e3779b9u;
      v = (v ^ (v >> 16)) * 0x7feb352du;
      v = (v ^ (v >> 15) ^ draws.high) * 0x846ca68bu;
      v >>= 32 - kRandomBits;
    }
    out[j] = static_cast<int32_t>(fixed + v) >> kRandomBits;
  }
}

template <int w>
CAIRN_INLINE void RoundBlock(RoundingKey key, uint64_t block, const float* in, float* out) {
  const Scale scale = ScaleOf<w>(LargestOf(in));
  int32_t mantissas[kB];
  MantissasOf<Up::kAtRandom>(in, scale.inverse, Draws(key, block), mantissas);
  const uint32_t spoiled = scale.exponent == kNotFinite ? 0xffffffffu : 0;
  for (size_t j = 0; j < kB; ++j) {
    const uint32_t u = std::bit_cast<uint32_t>(static_cast<float>(mantissas[j]) * scale.step);
    out[j] = std::bit_cast<float>((u & ~spoiled) | (0x7fc00000 & spoiled));
  }
}

template <int w>
CAIRN_INLINE void RoundLoop(RoundingKey key, uint64_t block, float* io, size_t blocks) {
  for (size_t b = 0; b < blocks; ++b) RoundBlock<w>(key, block + b, io + b * kB, io + b * kB);
}

template <int w>
CAIRN_INLINE void SumLoop(RoundingKey key, uint64_t block, float* __restrict into, const float* __restrict from,
                          size_t blocks) {
  for (size_t b = 0; b < blocks; ++b, into += kB, from += kB) {
    float sum[kB];
    for (size_t j = 0; j < kB; ++j) sum[j] = into[j] + from[j];
    RoundBlock<w>(key, block + b, sum, into);
  }
}

template <int w, Up up>
CAIRN_INLINE void PackLoop(RoundingKey key, uint64_t block, const float* __restrict in, size_t blocks,
                           uint8_t* __restrict mantissas, uint8_t* __restrict exponents) {
  using F = Format<w>;
  for (size_t b = 0; b < blocks; ++b, in += kB, mantissas += F::kBytes) {
    const Scale scale = ScaleOf<w>(LargestOf(in));
    int32_t wide[kB];
    MantissasOf<up>(in, scale.inverse, up == Up::kAtRandom ? Draws(key, block + b) : Draws(), wide);
    const int32_t kept = scale.exponent == kNotFinite ? 0 : (1 << w) - 1;
    for (size_t i = 0; i < F::kBytes; ++i) {
      int32_t byte = 0;
      for (int s = 0; s < F::kShare; ++s) byte |= (wide[i + static_cast<size_t>(s) * F::kBytes] & kept) << (s * w);
      mantissas[i] = static_cast<uint8_t>(byte);
    }
    exponents[b] = static_cast<uint8_t>(scale.exponent);
  }
}

template <int w>
CAIRN_INLINE void UnpackLoop(const uint8_t* __restrict mantissas, const uint8_t* __restrict exponents, size_t blocks,
                             float* __restrict out) {
  using F = Format<w>;
  for (size_t b = 0; b < blocks; ++b, mantissas += F::kBytes, out += kB) {
    const uint32_t e = exponents[b];
    // 2^(e - 127 - kPoint), subnormal below kLeast
    const uint32_t bits = e >= F::kLeast ? (e - F::kPoint) << 23 : 1u << (22 - F::kPoint + e);
    const float step = std::bit_cast<float>(e == kNotFinite ? 0x7fc00000 : bits);
    for (int s = 0; s < F::kShare; ++s) {
      for (size_t i = 0; i < F::kBytes; ++i) {
        const auto high = static_cast<int8_t>(mantissas[i] << (8 - w - s * w));  // the mantissa in the uppermost bits
        out[static_cast<size_t>(s) * F::kBytes + i] = static_cast<float>(high >> (8 - w)) * step;
      }
    }
  }
}

template <int w>
CAIRN_INLINE bool AnyForeignLoop(const uint8_t* __restrict mantissas, const uint8_t* __restrict exponents,
                                 size_t blocks) {
  using F = Format<w>;
  constexpr auto kLowest = static_cast<uint8_t>(1 << (w - 1)), kMask = static_cast<uint8_t>((1 << w) - 1);
  uint8_t any = 0;
  for (size_t i = 0; i < blocks * F::kBytes; ++i)
    for (int s = 0; s < F::kShare; ++s) any |= static_cast<uint8_t>(((mantissas[i] >> (s * w)) & kMask) == kLowest);
  for (size_t b = 0; b < blocks; ++b) {
    const uint8_t e = exponents[b];
    any |= static_cast<uint8_t>(e < F::kLeast || (e > F::kMost && e != kNotFinite));
  }
  return any != 0;
}

// Each function has all widths: a template has no clones.
#define CAIRN_BY_WIDTH(w, call) \
  do {                          \
    if ((w) == 8) {             \
      constexpr int kW = 8;     \
      call;                     \
    } else if ((w) == 4) {      \
      constexpr int kW = 4;     \
      call;                     \
    } else {                    \
      constexpr int kW = 2;     \
      call;                     \
    }                           \
  } while (false)

CAIRN_VECTORIZED void RoundBlocks(int w, RoundingKey key, uint64_t block, float* io, size_t blocks) {
  CAIRN_BY_WIDTH(w, RoundLoop<kW>(key, block, io, blocks));
}
CAIRN_VECTORIZED void SumBlocks(int w, RoundingKey key, uint64_t block, float* __restrict into,
                                const float* __restrict from, size_t blocks) {
  CAIRN_BY_WIDTH(w, SumLoop<kW>(key, block, into, from, blocks));
}
CAIRN_VECTORIZED void PackBlocks(int w, RoundingKey key, uint64_t block, const float* __restrict in, size_t blocks,
                                 uint8_t* __restrict mantissas, uint8_t* __restrict exponents) {
  CAIRN_BY_WIDTH(w, (PackLoop<kW, Up::kAtRandom>(key, block, in, blocks, mantissas, exponents)));
}
CAIRN_VECTORIZED void PackNearest(int w, const float* __restrict in, size_t blocks, uint8_t* __restrict mantissas,
                                  uint8_t* __restrict exponents) {
  CAIRN_BY_WIDTH(w, (PackLoop<kW, Up::kNearest>({}, 0, in, blocks, mantissas, exponents)));
}
CAIRN_VECTORIZED void UnpackBlocks(int w, const uint8_t* __restrict mantissas, const uint8_t* __restrict exponents,
                                   size_t blocks, float* __restrict out) {
  CAIRN_BY_WIDTH(w, UnpackLoop<kW>(mantissas, exponents, blocks, out));
}
CAIRN_VECTORIZED bool AnyForeign(int w, const uint8_t* __restrict mantissas, const uint8_t* __restrict exponents,
                                 size_t blocks) {
  bool any = false;
  CAIRN_BY_WIDTH(w, any = AnyForeignLoop<kW>(mantissas, exponents, blocks));
  return any;
}

int WidthOf(v1::DataType type) {
  CAIRN_CHECK(IsBlockInt(type), "not a type of blocks");
  return MantissaBitsOf(type);
}

uint64_t BlockOf(int64_t begin, size_t numbers) {
  CAIRN_CHECK(numbers % kB == 0 && begin % static_cast<int64_t>(kB) == 0, "not of whole blocks");
  return static_cast<uint64_t>(begin) / kB;
}

// The bytes of all mantissas: the exponents follow.
size_t MantissaBytes(int w, size_t numbers) { return numbers / 8 * static_cast<size_t>(w); }

}  // namespace

RoundingKey RoundingKey::Of(uint64_t seed, uint64_t sequence, uint32_t first, uint32_t count) {
  return {Mix(Mix(Mix(seed + 0x9e3779b97f4a7c15u) ^ sequence) ^ (uint64_t{first} << 32 | count))};
}

void RoundBlockInt(v1::DataType type, RoundingKey key, int64_t begin, absl::Span<float> io) {
  RoundBlocks(WidthOf(type), key, BlockOf(begin, io.size()), io.data(), io.size() / kB);
}

void SumBlockInt(v1::DataType type, RoundingKey key, int64_t begin, absl::Span<float> into,
                 absl::Span<const float> from) {
  CAIRN_CHECK(into.size() == from.size(), "gradients of different sizes");
  SumBlocks(WidthOf(type), key, BlockOf(begin, into.size()), into.data(), from.data(), into.size() / kB);
}

void PackBlockInt(v1::DataType type, RoundingKey key, int64_t begin, absl::Span<const float> in,
                  absl::Span<uint8_t> out) {
  const int w = WidthOf(type);
  CAIRN_CHECK(out.size() == BlockIntBytes(type, in.size()), "PackBlockInt: sizes differ");
  PackBlocks(w, key, BlockOf(begin, in.size()), in.data(), in.size() / kB, out.data(),
             out.data() + MantissaBytes(w, in.size()));
}

void PackBlockInt(v1::DataType type, absl::Span<const float> in, absl::Span<uint8_t> out) {
  const int w = WidthOf(type);
  CAIRN_CHECK(out.size() == BlockIntBytes(type, in.size()) && in.size() % kB == 0, "PackBlockInt: sizes differ");
  PackNearest(w, in.data(), in.size() / kB, out.data(), out.data() + MantissaBytes(w, in.size()));
}

void UnpackBlockInt(v1::DataType type, absl::Span<const uint8_t> in, absl::Span<float> out) {
  const int w = WidthOf(type);
  CAIRN_CHECK(in.size() == BlockIntBytes(type, out.size()) && out.size() % kB == 0, "UnpackBlockInt: sizes differ");
  UnpackBlocks(w, in.data(), in.data() + MantissaBytes(w, out.size()), out.size() / kB, out.data());
}

bool IsPackedBlockInt(v1::DataType type, absl::Span<const uint8_t> in) {
  const int w = WidthOf(type);
  const size_t blocks = in.size() / BlockIntBytes(type, kB);
  CAIRN_CHECK(in.size() == BlockIntBytes(type, blocks * kB), "IsPackedBlockInt: not of whole blocks");
  return !AnyForeign(w, in.data(), in.data() + MantissaBytes(w, blocks * kB), blocks);
}

}  // namespace cairn
