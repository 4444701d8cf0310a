// Products of dense matrices on the CPU, by oneDNN.
//
// Thread-safe.
#pragma once

#include <cstdint>

namespace cairn::onednn {

// The sizes of C = alpha A' B' + beta C, row by row: C is [m][n], A' is [m][k], B' is [k][n].
struct MatrixProduct {
  char transpose_a = 'N', transpose_b = 'N';  // 'T': the matrix in memory is the transpose of A', B'
  int64_t m = 0, n = 0, k = 0;
  int64_t a_row = 0, b_row = 0, c_row = 0;  // numbers from one row to the next
  float alpha = 1;
};
void MultiplyMatrices(const MatrixProduct& p, const float* a, const float* b, float beta, float* c);

}  // namespace cairn::onednn
