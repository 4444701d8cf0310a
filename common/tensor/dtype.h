// Element types on the wire and conversions between them and float32. Conversions to a shorter type round to nearest, ties to even;
// NaN stays NaN, overflow becomes infinity.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "cairn/v1/types.pb.h"
#include "common/base/status.h"

namespace cairn {

// Bytes of one element; 0 for a type that is not known.
size_t SizeOf(v1::DataType type);

// out.size() == in.size() * SizeOf(type).
void FromFloat(absl::Span<const float> in, v1::DataType type, absl::Span<uint8_t> out);
// in.size() == out.size() * SizeOf(type).
void ToFloat(absl::Span<const uint8_t> in, v1::DataType type, absl::Span<float> out);

}  // namespace cairn
