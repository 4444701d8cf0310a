// Numbers in 8, 4 or 2 bits (DataType INT8, INT4, INT2): blocks of 16 numbers with one shared exponent and 16 signed
// mantissas. A number takes 1.0625, 0.5625 or 0.3125 bytes.
//
// INT8 is MXINT8 of the OCP Microscaling Formats (MX) Specification v1.0 with blocks of 16 instead of 32; the others
// have narrower mantissas. With w bits a number is m / 2^(w - 2) * 2^(e - 127), with the block's e in a byte (255: all
// numbers of the block are NaN) and m in -top .. top, top = 2^(w - 1) - 1: 127, 7 or 1. The parameter space is
// partitioned at multiples of 16 numbers (kSpaceAlignment), so a block lies in one partition, and the bits do not
// depend on the partitioning. The wire has all mantissas, then all exponents. Mantissas narrower than a byte: byte i of
// a block has those of i, i + 8 (INT4), or of i, i + 4, i + 8, i + 12 (INT2), from its lowest bits up.
//
// Rounding. The block's exponent is the smallest at which its largest number fits. Then a number becomes one of its two
// neighbours m, m + 1. At random (gradients): the upper one with probability equal to its relative position between
// them: unbiased, to within 2^-16 of their distance. The random number is a function of (seed, update, node of the
// summation tree, position in the parameter space), so that the rounding is a function of the JobSpec. Stochastic
// rounding is that of QSGD (Alistarh et al. 2017), and in 2 bits that of TernGrad (Wen et al. 2017), with a scale for
// each block. To nearest (values; as in ZeRO++, Wang et al. 2023): the ps keeps the exact ones.
//
// The alternative, error feedback (1-bit SGD, Seide et al. 2014; top-k, Lin et al. 2018), adds what was not sent to the
// next gradient: a residual of each replica that nobody else knows. It dies with its worker, and then the sums depend
// on which worker died. Rounding at random has no state: a retry, another worker and another run send the same bytes.
//
// Pure functions; any thread; the same bits on every processor. Invariants:
//   1. Representable numbers, and so numbers that were rounded before, are unchanged, whatever the key. Zeros lose
//      their sign.
//   2. A block with an infinity, a NaN, or a number above the largest representable one (127 * 2^121, 7 * 2^125, 2^126)
//      becomes 16 NaN, so that a non-finite gradient stays detectable.
//   3. The step is at least 2^-126: a block of subnormal numbers becomes zeros and multiples of that, unbiased.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "cairn/v1/types.pb.h"
#include "common/base/limits.h"

namespace cairn {

inline constexpr size_t kIntBlock = 16;
static_assert(kIntBlock == kSpaceAlignment, "a block must not lie in two partitions");

// The bits of a mantissa; 0: the type is not one of these.
constexpr int MantissaBitsOf(v1::DataType type) {
  return type == v1::INT8 ? 8 : type == v1::INT4 ? 4 : type == v1::INT2 ? 2 : 0;
}
constexpr bool IsBlockInt(v1::DataType type) { return MantissaBitsOf(type) > 0; }

// `type` is one of these in all that follows. All spans hold whole blocks. `begin`: the first number's index in the
// parameter space, a multiple of 16.
constexpr size_t BlockIntBytes(v1::DataType type, size_t numbers) {
  return numbers / kIntBlock * (kIntBlock / 8 * static_cast<size_t>(MantissaBitsOf(type)) + 1);
}

// The key with which the node [first, first + count) is rounded in an update of a job.
struct RoundingKey {
  uint64_t bits = 0;
  static RoundingKey Of(uint64_t seed, uint64_t sequence, uint32_t first, uint32_t count);
};

void RoundBlockInt(v1::DataType type, RoundingKey key, int64_t begin, absl::Span<float> io);
// into = into + from, rounded, in one pass. The spans do not overlap.
void SumBlockInt(v1::DataType type, RoundingKey key, int64_t begin, absl::Span<float> into,
                 absl::Span<const float> from);
// Rounds and packs; out.size() == BlockIntBytes(type, in.size()), at any address.
void PackBlockInt(v1::DataType type, RoundingKey key, int64_t begin, absl::Span<const float> in,
                  absl::Span<uint8_t> out);
// The same, rounding to nearest, ties up: exact for numbers that are already rounded.
void PackBlockInt(v1::DataType type, absl::Span<const float> in, absl::Span<uint8_t> out);
// All bytes are valid: an exponent of 255 gives 16 NaN, a mantissa of -top - 1 is a number like the others (or
// infinity).
void UnpackBlockInt(v1::DataType type, absl::Span<const uint8_t> in, absl::Span<float> out);
// Whether rounding keeps the numbers of these bytes: no mantissa is -top - 1, and the exponent is one that rounding
// gives. Otherwise they must be rounded.
bool IsPackedBlockInt(v1::DataType type, absl::Span<const uint8_t> in);

}  // namespace cairn
