#include "server/core/newton_schulz.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "common/tensor/vectorize.h"

namespace cairn {
namespace {

constexpr int64_t kTileRows = 4, kTileColumns = 16;  // of a product that stays in registers
constexpr int64_t kDepth = 256;                      // rows of b that are packed at a time: 16 KiB
constexpr int64_t kTransposed = 32;                  // side of the blocks of a transposition

using Lanes = float __attribute__((vector_size(kTileColumns * sizeof(float))));

// Four rows of out += a * packed. `stride`: of a's rows.
CAIRN_VECTORIZED void MultiplyTile(const float* __restrict a, int64_t stride, const float* __restrict packed,
                                   int64_t depth, float* __restrict tile) {
  Lanes r0, r1, r2, r3, b;
  std::memcpy(&r0, tile, sizeof(b));
  std::memcpy(&r1, tile + kTileColumns, sizeof(b));
  std::memcpy(&r2, tile + 2 * kTileColumns, sizeof(b));
  std::memcpy(&r3, tile + 3 * kTileColumns, sizeof(b));
  for (int64_t k = 0; k < depth; ++k) {
    std::memcpy(&b, packed + k * kTileColumns, sizeof(b));
    r0 = r0 + a[k] * b;
    r1 = r1 + a[stride + k] * b;
    r2 = r2 + a[2 * stride + k] * b;
    r3 = r3 + a[3 * stride + k] * b;
  }
  std::memcpy(tile, &r0, sizeof(b));
  std::memcpy(tile + kTileColumns, &r1, sizeof(b));
  std::memcpy(tile + 2 * kTileColumns, &r2, sizeof(b));
  std::memcpy(tile + 3 * kTileColumns, &r3, sizeof(b));
}

// One row of out += a * packed.
CAIRN_VECTORIZED void MultiplyRow(const float* __restrict a, const float* __restrict packed, int64_t depth,
                                  float* __restrict row) {
  Lanes r, b;
  std::memcpy(&r, row, sizeof(r));
  for (int64_t k = 0; k < depth; ++k) {
    std::memcpy(&b, packed + k * kTileColumns, sizeof(b));
    r = r + a[k] * b;
  }
  std::memcpy(row, &r, sizeof(r));
}

// `depth` rows of b, of which `width` columns are filled.
struct PackedRows {
  const float* numbers = nullptr;
  int64_t depth = 0;
  int64_t width = 0;
};

// b.width columns of out [m, n] += those of a's b.depth columns times the packed rows. k: a's stride.
void MultiplyColumns(const float* a, int64_t k, const PackedRows& b, float* out, int64_t m, int64_t n) {
  const float* const packed = b.numbers;
  const int64_t depth = b.depth, width = b.width;
  float tile[kTileRows * kTileColumns] = {};
  for (int64_t i = 0; i < m; i += kTileRows) {
    const int64_t rows = std::min(kTileRows, m - i);
    for (int64_t r = 0; r < rows; ++r) std::copy_n(out + (i + r) * n, width, tile + r * kTileColumns);
    if (rows == kTileRows) {
      MultiplyTile(a + i * k, k, packed, depth, tile);
    } else {
      for (int64_t r = 0; r < rows; ++r) MultiplyRow(a + (i + r) * k, packed, depth, tile + r * kTileColumns);
    }
    for (int64_t r = 0; r < rows; ++r) std::copy_n(tile + r * kTileColumns, width, out + (i + r) * n);
  }
}

void Transpose(const float* from, int64_t rows, int64_t columns, float* to) {
  for (int64_t i0 = 0; i0 < rows; i0 += kTransposed) {
    for (int64_t j0 = 0; j0 < columns; j0 += kTransposed) {
      for (int64_t i = i0; i < std::min(i0 + kTransposed, rows); ++i) {
        for (int64_t j = j0; j < std::min(j0 + kTransposed, columns); ++j) to[j * rows + i] = from[i * columns + j];
      }
    }
  }
}

// out = f * x + g * y
CAIRN_VECTORIZED void Combine(float f, const float* __restrict x, float g, const float* __restrict y,
                              float* __restrict out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = f * x[i] + g * y[i];
}

CAIRN_VECTORIZED void Divide(float* x, int64_t n, float by) {
  for (int64_t i = 0; i < n; ++i) x[i] = x[i] / by;
}

float Norm(const float* x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  return static_cast<float>(std::sqrt(sum));
}

// The iterations of a matrix that has not more rows than columns.
void Iterate(const NewtonSchulz& iteration, int64_t rows, int64_t columns, float* x) {
  const auto square = static_cast<size_t>(rows * rows), all = static_cast<size_t>(rows * columns);
  std::vector<float> s(square), factor(square), other(std::max(square, all));
  Divide(x, rows * columns, Norm(x, rows * columns) + 1e-7f);
  for (int step = 0; step < iteration.steps; ++step) {
    Transpose(x, rows, columns, other.data());
    MultiplyMatrices(x, other.data(), s.data(), rows, columns, rows);
    MultiplyMatrices(s.data(), s.data(), other.data(), rows, rows, rows);
    Combine(iteration.b, s.data(), iteration.c, other.data(), factor.data(), rows * rows);
    MultiplyMatrices(factor.data(), x, other.data(), rows, rows, columns);
    for (int64_t i = 0; i < rows * columns; ++i) x[i] = iteration.a * x[i] + other[static_cast<size_t>(i)];
  }
}

}  // namespace

void MultiplyMatrices(const float* a, const float* b, float* out, int64_t m, int64_t k, int64_t n) {
  std::fill_n(out, m * n, 0.0f);
  std::vector<float> packed(static_cast<size_t>(std::min(kDepth, k) * kTileColumns));
  for (int64_t from = 0; from < k; from += kDepth) {
    const int64_t depth = std::min(kDepth, k - from);
    for (int64_t first = 0; first < n; first += kTileColumns) {
      const int64_t width = std::min(kTileColumns, n - first);
      for (int64_t r = 0; r < depth; ++r) {
        std::copy_n(b + (from + r) * n + first, width, packed.data() + r * kTileColumns);
      }
      MultiplyColumns(a + from, k, {.numbers = packed.data(), .depth = depth, .width = width}, out + first, m, n);
    }
  }
}

void Orthogonalize(const NewtonSchulz& iteration, int64_t rows, int64_t columns, float* x) {
  if (rows <= columns) return Iterate(iteration, rows, columns, x);
  std::vector<float> turned(static_cast<size_t>(rows * columns));
  Transpose(x, rows, columns, turned.data());
  Iterate(iteration, columns, rows, turned.data());
  Transpose(turned.data(), columns, rows, x);
}

}  // namespace cairn
