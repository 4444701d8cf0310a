// Gram and Schmidt's process, for the ORTHOGONAL initializer.
//
// A pure function: products and sums are in one order, so that every machine gives the same bits.
#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace cairn {

// Makes `count` vectors of `length` numbers, one after the other, orthogonal and of length 1: Q of their QR with a
// positive diagonal of R. count <= length; the vectors are not dependent (random ones are not).
void Orthonormalize(int64_t count, int64_t length, absl::Span<double> vectors);

}  // namespace cairn
