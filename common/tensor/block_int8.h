// Gradients in 8 bits (DataType INT8): blocks of 16 numbers with one shared exponent and 16 signed mantissas, 1.0625
// bytes per number.
//
// The format is MXINT8 of the OCP Microscaling Formats (MX) Specification v1.0 with blocks of 16 instead of 32: a
// number is m / 64 * 2^(e - 127), with the block's e in a byte (255: all numbers of the block are NaN) and m in -127 ..
// 127. The parameter space is partitioned at multiples of 16 numbers (kSpaceAlignment), so a block lies in one
// partition, and the bits do not depend on the partitioning. The wire has all mantissas, then all exponents.
//
// Rounding. The block's exponent is the smallest at which its largest number fits. Then a number becomes one of its two
// neighbours m, m + 1, the upper one with probability equal to its relative position between them: unbiased, to within
// 2^-16 of their distance. The random number is a function of (seed, update, node of the summation tree, position in
// the parameter space), so that the rounding is a function of the JobSpec. Stochastic rounding is that of QSGD
// (Alistarh et al. 2017). The alternative, error feedback (1-bit SGD, Seide et al. 2014), adds the rounding error to
// the next gradient: a residual per replica, which would have to move with its replica from worker to worker and to
// survive their failures, or else the bits (and the sums) would depend on which worker died. With 7 bits of mantissa
// the noise is small compared to that of the batch, and there is no such state.
//
// Pure functions; any thread; the same bits on every processor. Invariants:
//   1. Representable numbers, and so numbers that were rounded before, are unchanged, whatever the key. Zeros lose
//      their sign.
//   2. A block with an infinity, a NaN, or a number above 127 * 2^121 (0.99 of the largest float) becomes 16 NaN, so
//      that a non-finite gradient stays detectable.
//   3. The step is at least 2^-126: a block of subnormal numbers becomes zeros and multiples of that, unbiased.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "common/base/limits.h"

namespace cairn {

inline constexpr size_t kInt8Block = 16;
static_assert(kInt8Block == kSpaceAlignment, "a block must not lie in two partitions");

// All spans hold whole blocks. `begin`: the first number's index in the parameter space, a multiple of 16.
constexpr size_t Int8BytesOf(size_t numbers) { return numbers + numbers / kInt8Block; }

// The key with which the node [first, first + count) is rounded in an update of a job.
struct Int8Key {
  uint64_t bits = 0;
  static Int8Key Of(uint64_t seed, uint64_t sequence, uint32_t first, uint32_t count);
};

void RoundInt8(Int8Key key, int64_t begin, absl::Span<float> io);
// into = into + from, rounded, in one pass. The spans do not overlap.
void SumRoundedInt8(Int8Key key, int64_t begin, absl::Span<float> into, absl::Span<const float> from);
// Rounds and packs; out.size() == Int8BytesOf(in.size()), at any address.
void PackInt8(Int8Key key, int64_t begin, absl::Span<const float> in, absl::Span<uint8_t> out);
// The same, rounding to nearest, ties up: exact for numbers that are already rounded.
void PackInt8(absl::Span<const float> in, absl::Span<uint8_t> out);
// All bytes are valid: an exponent of 255 gives 16 NaN, a mantissa of -128 is a number like the others (or infinity).
void UnpackInt8(absl::Span<const uint8_t> in, absl::Span<float> out);
// Whether unpacking and PackInt8 reproduce the bytes: no mantissa of -128, no exponent below 7. Otherwise the numbers
// must be rounded.
bool IsPackedInt8(absl::Span<const uint8_t> in);

}  // namespace cairn
