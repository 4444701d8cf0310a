// Gradients in 8 bits (DataType INT8): blocks of 16 numbers with one power of two and 16 signed mantissas, 1.0625 bytes
// a number.
//
// The format is MXINT8 of the OCP Microscaling Formats (MX) Specification v1.0 with blocks of 16 instead of 32: a
// number is m / 64 * 2^(e - 127), with the block's e in a byte (255: nothing in the block is a number) and m in -127 ..
// 127. 16 numbers are the grain on which the parameter space is cut (kSpaceAlignment): a block lies in one partition,
// and the bits do not depend on the cut. On the wire come all mantissas of the tensor, then all exponents.
//
// Rounding. The block's exponent is the least with which its largest number fits. Then a number becomes one of its two
// neighbours m, m + 1, the upper one with the probability of its place between them: unbiased, to within 2^-16 of their
// distance. The random number is a function of (seed, update, node of the summation tree, place in the parameter
// space), so that the rounding is a function of the JobSpec as everything else is. Stochastic rounding is that of QSGD
// (Alistarh et al. 2017). The other way to train with few bits, error feedback (1-bit SGD, Seide et al. 2014), adds
// what rounding left out to the next gradient: a residual per replica, which would have to move with its replica from
// worker to worker and to survive both, or the bits (and the sums) would depend on who died. With 7 bits of mantissa
// the noise is small beside that of the batch, and there is nothing to keep.
//
// Pure functions; any thread; the same bits on every processor. Invariants:
//   1. What is representable stays as it is, whatever the key; in particular a number that was rounded. Zeros lose
//      their sign.
//   2. A block with an infinity, a NaN, or a number above 127 * 2^121 (0.99 of the largest float) becomes 16 NaN: a
//      gradient that is not finite is found wherever it is looked for.
//   3. Steps are never finer than 2^-126: a block of subnormal numbers becomes zeros and multiples of that, unbiased.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "common/base/limits.h"

namespace cairn {

inline constexpr size_t kInt8Block = 16;
static_assert(kInt8Block == kSpaceAlignment, "a block must not lie in two partitions");

// Spans here are of whole blocks. `begin`: the first number's place in the parameter space, a multiple of 16.
constexpr size_t Int8BytesOf(size_t numbers) { return numbers + numbers / kInt8Block; }

// With what the node [first, first + count) is rounded in an update of a job.
struct Int8Key {
  uint64_t bits = 0;
  static Int8Key Of(uint64_t seed, uint64_t sequence, uint32_t first, uint32_t count);
};

void RoundInt8(Int8Key key, int64_t begin, absl::Span<float> io);
// into + from, rounded, in one pass. They do not overlap.
void SumRoundedInt8(Int8Key key, int64_t begin, absl::Span<float> into, absl::Span<const float> from);
// Rounded and packed; out.size() == Int8BytesOf(in.size()), at any address.
void PackInt8(Int8Key key, int64_t begin, absl::Span<const float> in, absl::Span<uint8_t> out);
// The same to the nearest, ties up: exact for what has been rounded.
void PackInt8(absl::Span<const float> in, absl::Span<uint8_t> out);
// Any bytes have a meaning: an exponent of 255 is 16 NaN, -128 is a number as the others are (or infinity).
void UnpackInt8(absl::Span<const uint8_t> in, absl::Span<float> out);
// Whether the bytes hold numbers that PackInt8 gives back as they are: no -128, no exponent below 7. Others are to be
// rounded.
bool IsPackedInt8(absl::Span<const uint8_t> in);

}  // namespace cairn
