#include "worker/backend/onednn/matrix_product.h"

#include "dnnl.hpp"

namespace cairn::onednn {

void MultiplyMatrices(const MatrixProduct& p, const float* a, const float* b, float beta, float* c) {
  dnnl::error::wrap_c_api(
      dnnl_sgemm(p.transpose_a, p.transpose_b, p.m, p.n, p.k, p.alpha, a, p.a_row, b, p.b_row, beta, c, p.c_row),
      "could not multiply matrices");
}

}  // namespace cairn::onednn
