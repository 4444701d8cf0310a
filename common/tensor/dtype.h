// Element types on the wire and conversions between them and float32. Conversions to 16 bits round to nearest, ties to
// even; NaN stays NaN, overflow becomes infinity. INT8 is of blocks (block_int8.h): spans of it are of whole blocks,
// and conversions are exact for what has been rounded. FLOAT16 ends at 65504: numbers may be kept in it times 2^-shift
// (sums over many examples; gradient_rounding.h). Other types know no shift.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "cairn/v1/types.pb.h"
#include "common/base/status.h"

namespace cairn {

// Bytes of one element; 0 for a type that is not known, and for INT8, whose elements have no size of their own.
size_t SizeOf(v1::DataType type);

// Bytes of so many numbers; 0 for a type that is not known.
size_t BytesOf(v1::DataType type, size_t numbers);

// In which type a job with this wire_dtype sends values: its own, but BFLOAT16 where gradients are INT8.
inline v1::DataType ValuesTypeOf(v1::DataType wire) { return wire == v1::INT8 ? v1::BFLOAT16 : wire; }

// out.size() == BytesOf(type, in.size()).
void FromFloat(absl::Span<const float> in, v1::DataType type, absl::Span<uint8_t> out, int shift = 0);
// in.size() == BytesOf(type, out.size()).
void ToFloat(absl::Span<const uint8_t> in, v1::DataType type, absl::Span<float> out, int shift = 0);

// Each number becomes the nearest one that the type has: ToFloat(FromFloat(numbers)), bit for bit. Of the types that
// SizeOf knows.
void RoundTo(v1::DataType type, absl::Span<float> numbers, int shift = 0);
// into = RoundTo(into + from), in one pass. Of one size; they do not overlap.
void SumRounded(v1::DataType type, absl::Span<float> into, absl::Span<const float> from, int shift = 0);

}  // namespace cairn
