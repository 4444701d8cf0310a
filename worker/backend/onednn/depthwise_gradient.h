// The gradient of a depthwise convolution's kernel of 5 x 5 or 7 x 7, for which oneDNN 2.6 has no loop of its own: it
// multiplies matrices of one row instead, many times slower. Images are in blocks of 16 channels (nChw16c).
//
// Thread-safe. Each number of the gradient is a sum over examples, rows and columns in their order, on one thread: the
// bits depend on neither the number of threads nor the vector width.
#pragma once

#include <cstdint>

namespace cairn::onednn {

struct DepthwiseShape {
  int64_t examples = 0, channels = 0;
  int64_t rows = 0, columns = 0;  // of the input
  int64_t out_rows = 0, out_columns = 0;
  int64_t kernel = 0;  // of both axes
  int64_t row_stride = 1, column_stride = 1;
  int64_t pad_top = 0, pad_left = 0;
};

// Whether the functions below know kernels of this size.
inline bool HasDepthwiseGradient(int64_t rows, int64_t columns) { return rows == columns && (rows == 5 || rows == 7); }

// The numbers that DepthwiseKernelGradient needs as scratch.
int64_t DepthwiseScratchNumbers(const DepthwiseShape& shape);
// gradient: [kernel, kernel, channels], as Keras' with a depth multiplier of 1.
void DepthwiseKernelGradient(const DepthwiseShape& shape, const float* x, const float* dy, float* scratch,
                             float* gradient);
// gradient: [channels], the sums of dy.
void DepthwiseBiasGradient(const DepthwiseShape& shape, const float* dy, float* gradient);

}  // namespace cairn::onednn
