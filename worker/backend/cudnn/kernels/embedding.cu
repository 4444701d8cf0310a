// Embedding.
#include "worker/backend/cudnn/kernels/places.h"

namespace cairn::cudnn::kernels {
namespace {

struct Gather {
  Divider width;
  const float* ids;
  In table;
  Out y;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    int64_t place;
    const int64_t column = width.Split(i, &place);
    Store<V>(y, i, Load<V>(table, static_cast<int64_t>(ids[place]) * width.divisor() + column));
  }
};

// A block has 32 rows of the table, 32 columns, and 8 lanes of places. It goes over all ids, 256 at a time; lane k adds
// the places k, k + 8,
// ... that have one of its rows; then the lanes are added as a tree.
struct Scatter {
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kAcross = 32, kLanes = kThreads / kAcross, kRows = 32;
  static constexpr int kSumBytes = kLanes * kRows * kAcross * 4;
  static constexpr int kSharedBytes = kSumBytes + kThreads * 4;
  int64_t count, rows;
  Divider width, tiles;
  const float* ids;
  In dy;
  float* dtable;
  template <class B>
  CAIRN_DEVICE void operator()(B& block) const {
    float* sums = block.template Shared<float>();               // [kRows][kLanes][kAcross]
    int32_t* near = block.template Shared<int32_t>(kSumBytes);  // of 256 places the row within the block's, or -1
    int64_t row0, column0 = tiles.Split(block.index(), &row0) * kAcross;
    row0 *= kRows;
    block.ForEachThread([&](int thread) {
      for (int r = 0; r < kRows; ++r) sums[r * kThreads + thread] = 0;
    });
    for (int64_t begin = 0; begin < count; begin += kThreads) {
      block.ForEachThread([&](int thread) {
        const int64_t row = begin + thread < count ? static_cast<int64_t>(ids[begin + thread]) - row0 : -1;
        near[thread] = row >= 0 && row < kRows ? static_cast<int32_t>(row) : -1;
      });
      block.ForEachThread([&](int thread) {
        const int64_t column = column0 + thread % kAcross;
        if (column >= width.divisor()) return;
        for (int k = thread / kAcross; k < kThreads; k += kLanes) {
          if (near[k] >= 0) sums[near[k] * kThreads + thread] += At(dy, (begin + k) * width.divisor() + column);
        }
      });
    }
    for (int half = kLanes / 2; half > 0; half /= 2) {
      block.ForEachThread([&](int thread) {
        if (thread / kAcross >= half) return;
        for (int r = 0; r < kRows; ++r) sums[r * kThreads + thread] += sums[r * kThreads + thread + half * kAcross];
      });
    }
    block.ForEachThread([&](int thread) {
      const int64_t column = column0 + thread % kAcross;
      for (int r = thread / kAcross; r < kRows && column < width.divisor(); r += kLanes) {
        if (row0 + r < rows) dtable[(row0 + r) * width.divisor() + column] = sums[r * kThreads + thread % kAcross];
      }
    });
  }
};

}  // namespace

Error Embedding(Stream stream, int64_t count, int64_t width, const float* ids, const float* table, void* y,
                DType type) {
  const int64_t n = count * width;
  return LaunchForEach(stream, n, Wide(width), Gather{Divider(width, n), ids, {table, DType::kFloat32}, {y, type}});
}

int64_t EmbeddingScratch(int64_t, int64_t) { return 0; }

Error EmbeddingBackward(Stream stream, int64_t count, int64_t rows, int64_t width, const float* ids, const void* dy,
                        float* dtable, float*, DType type) {
  const int64_t tiles = CeilDivide(width, Scatter::kAcross), blocks = tiles * CeilDivide(rows, Scatter::kRows);
  return Launch(stream, blocks,
                Scatter{count, rows, Divider(width, count * width), Divider(tiles, blocks), ids, {dy, type}, dtable});
}

}  // namespace cairn::cudnn::kernels
