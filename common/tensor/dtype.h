// Element types on the wire and conversions between them and float32. Conversions to 16 bits round to nearest, ties to
// even; NaN stays NaN, overflow becomes infinity. INT8, INT4 and INT2 are block formats (block_int.h): their spans
// hold whole blocks, and conversions are to nearest, ties up, exact for rounded numbers. The largest FLOAT16 is 65504,
// so it may hold numbers times 2^-shift (sums over many examples; gradient_rounding.h). Other types ignore the shift.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "cairn/v1/types.pb.h"
#include "common/base/status.h"

namespace cairn {

// Bytes of one element; 0 for an unknown type and for blocks, whose elements have no size of their own.
size_t SizeOf(v1::DataType type);

// Bytes of this many numbers; 0 for an unknown type.
size_t BytesOf(v1::DataType type, size_t numbers);

// out.size() == BytesOf(type, in.size()).
void FromFloat(absl::Span<const float> in, v1::DataType type, absl::Span<uint8_t> out, int shift = 0);
// in.size() == BytesOf(type, out.size()).
void ToFloat(absl::Span<const uint8_t> in, v1::DataType type, absl::Span<float> out, int shift = 0);

// Rounds each number to the nearest of the type: ToFloat(FromFloat(numbers)), bit for bit. Only for types with a
// SizeOf.
void RoundTo(v1::DataType type, absl::Span<float> numbers, int shift = 0);
// into = RoundTo(into + from), in one pass. The spans have the same size and do not overlap.
void SumRounded(v1::DataType type, absl::Span<float> into, absl::Span<const float> from, int shift = 0);

}  // namespace cairn
