// The Newton-Schulz iterations of Muon (Jordan et al. 2024), which bring a matrix's singular values near to 1.
//
// Pure functions; any thread. Invariant: every element of a product is summed in the order of its index, in float32,
// and no operation is fused: the bits are equal on every x86-64.
#pragma once

#include <cstdint>

namespace cairn {

struct NewtonSchulz {
  float a = 0, b = 0, c = 0;
  int steps = 0;
};
// x, row-major [rows, columns], becomes the last of
//   x = x / (|x| + 1e-7);  then `steps` times  s = x x^T;  x = a x + (b s + c s s) x
// of its transpose where it has more rows than columns. Takes scratch memory of at most
// four matrices of its size.
void Orthogonalize(const NewtonSchulz& iteration, int64_t rows, int64_t columns, float* x);

// out [m, n] = a [m, k] * b [k, n], all row-major. out overlaps neither.
void MultiplyMatrices(const float* a, const float* b, float* out, int64_t m, int64_t k, int64_t n);

}  // namespace cairn
