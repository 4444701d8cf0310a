#include "worker/backend/onednn/depthwise_gradient.h"

#include <algorithm>
#include <cstring>

#include "worker/backend/onednn/vector.h"

namespace cairn::onednn {
namespace {

constexpr int64_t kBlock = 16;  // channels
using Lane = float __attribute__((vector_size(kBlock * sizeof(float)), may_alias));

int64_t Blocks(const DepthwiseShape& s) { return (s.channels + kBlock - 1) / kBlock; }
// Of an image with all the zeros that a window meets.
int64_t PaddedColumns(const DepthwiseShape& s) {
  return std::max((s.out_columns - 1) * s.column_stride + s.kernel, s.pad_left + s.columns);
}
int64_t PaddedRows(const DepthwiseShape& s) {
  return std::max((s.out_rows - 1) * s.row_stride + s.kernel, s.pad_top + s.rows);
}

// Copies one block of one example between the zeros of the padding.
void Pad(const DepthwiseShape& s, const float* x, float* padded) {
  const int64_t line = PaddedColumns(s) * kBlock, width = s.columns * kBlock;
  std::memset(padded, 0, static_cast<size_t>(PaddedRows(s) * line) * sizeof(float));
  for (int64_t row = 0; row < s.rows; ++row) {
    std::memcpy(padded + (s.pad_top + row) * line + s.pad_left * kBlock, x + row * width, width * sizeof(float));
  }
}

// One block of one example: adds to `sums` [kRows, kColumns] of the kernel's rows from `first` on. The sums stay in
// registers.
template <int kRows, int kColumns>
[[gnu::always_inline]] inline void AddTaps(const DepthwiseShape& s, int64_t first, const Lane* x, const Lane* dy,
                                           Lane* sums) {
  const int64_t line = PaddedColumns(s);
  Lane sum[kRows][kColumns];
  std::memcpy(sum, sums, sizeof(sum));
  for (int64_t row = 0; row < s.out_rows; ++row) {
    const Lane* window = x + (row * s.row_stride + first) * line;
    for (int64_t column = 0; column < s.out_columns; ++column, ++dy, window += s.column_stride) {
      const Lane d = *dy;
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
        for (int j = 0; j < kColumns; ++j) sum[i][j] += window[i * line + j] * d;
      }
    }
  }
  std::memcpy(sums, sum, sizeof(sum));
}
CAIRN_VECTOR void FiveRowsOfFive(const DepthwiseShape& s, const Lane* x, const Lane* dy, Lane* sums) {
  AddTaps<5, 5>(s, 0, x, dy, sums);
}
// In two parts: there are 32 registers.
CAIRN_VECTOR void SevenRowsOfSeven(const DepthwiseShape& s, const Lane* x, const Lane* dy, Lane* sums) {
  AddTaps<4, 7>(s, 0, x, dy, sums);
  AddTaps<3, 7>(s, 4, x, dy, sums + 4 * 7);
}

CAIRN_VECTOR void AddLanes(const Lane* x, int64_t count, Lane* sum) {
  Lane total = *sum;
  for (int64_t i = 0; i < count; ++i) total += x[i];
  *sum = total;
}

}  // namespace

int64_t DepthwiseScratchNumbers(const DepthwiseShape& s) {
  return Blocks(s) * PaddedRows(s) * PaddedColumns(s) * kBlock;
}

void DepthwiseKernelGradient(const DepthwiseShape& s, const float* x, const float* dy, float* scratch,
                             float* gradient) {
  const int64_t blocks = Blocks(s), taps = s.kernel * s.kernel, padded = PaddedRows(s) * PaddedColumns(s) * kBlock;
  const int64_t in = s.rows * s.columns * kBlock, out = s.out_rows * s.out_columns * kBlock;
#pragma omp parallel for schedule(static)
  for (int64_t block = 0; block < blocks; ++block) {
    alignas(64) Lane sums[7 * 7] = {};
    float* const image = scratch + block * padded;
    for (int64_t n = 0; n < s.examples; ++n) {
      Pad(s, x + (n * blocks + block) * in, image);
      const Lane* const window = reinterpret_cast<const Lane*>(image);
      const Lane* const d = reinterpret_cast<const Lane*>(dy + (n * blocks + block) * out);
      if (s.kernel == 5) {
        FiveRowsOfFive(s, window, d, sums);
      } else {
        SevenRowsOfSeven(s, window, d, sums);
      }
    }
    const int64_t channels = std::min(kBlock, s.channels - block * kBlock);
    for (int64_t tap = 0; tap < taps; ++tap) {
      std::memcpy(gradient + tap * s.channels + block * kBlock, &sums[tap], channels * sizeof(float));
    }
  }
}

void DepthwiseBiasGradient(const DepthwiseShape& s, const float* dy, float* gradient) {
  const int64_t blocks = Blocks(s), pixels = s.out_rows * s.out_columns;
#pragma omp parallel for schedule(static)
  for (int64_t block = 0; block < blocks; ++block) {
    alignas(64) Lane sum = {};
    for (int64_t n = 0; n < s.examples; ++n) {
      AddLanes(reinterpret_cast<const Lane*>(dy) + (n * blocks + block) * pixels, pixels, &sum);
    }
    std::memcpy(gradient + block * kBlock, &sum, std::min(kBlock, s.channels - block * kBlock) * sizeof(float));
  }
}

}  // namespace cairn::onednn
