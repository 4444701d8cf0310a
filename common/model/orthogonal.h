// The Gram-Schmidt process, for the ORTHOGONAL initializer.
//
// A pure function. The order of its products and sums is fixed, so every machine computes the same bits.
#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace cairn {

// Makes `count` consecutive vectors of `length` numbers orthonormal: the Q of their QR decomposition with a positive
// diagonal of R. REQUIRED: count <= length, and the vectors are linearly independent (random ones are).
void Orthonormalize(int64_t count, int64_t length, absl::Span<double> vectors);

}  // namespace cairn
