// Masks of steps: the layers that make them, the mean over the steps that count, attention's scores.
#include <cmath>

#include "worker/backend/cudnn/kernels/numbers.h"
#include "worker/backend/cudnn/kernels/recurrent.h"

namespace cairn::cudnn::kernels {
namespace {

struct MaskOfRow {
  int64_t columns;
  float value;
  In x;
  float* mask;
  Out y;
  template <int V>
  CAIRN_DEVICE void Do(int64_t row) const {
    float counts = 0;
    for (int64_t c = 0; c < columns; ++c) counts = At(x, row * columns + c) != value ? 1.0f : counts;
    mask[row] = counts;
    for (int64_t c = 0; c < columns; ++c) Set(y, row * columns + c, At(x, row * columns + c) * counts);
  }
};

struct TimesMask {
  Divider columns;
  const float* mask;
  bool add;
  In x;
  Out y;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    SetOrAdd(y, i, At(x, i) * mask[columns(i)], add);
  }
};

struct IdMask {
  const float* ids;
  float* mask;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    mask[i] = ids[i] == 0 ? 0.0f : 1.0f;
  }
};

CAIRN_DEVICE float ShareOf(const float* mask, int64_t steps) {
  float count = 0;
  for (int64_t s = 0; s < steps; ++s) count += mask[s];
  return count > 0 ? 1.0f / count : 0.0f;
}

struct AverageOfSteps {
  int64_t steps;
  Divider channels;
  const float* mask;
  In x;
  Out y;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    int64_t example;
    const int64_t channel = channels.Split(i, &example);
    float sum = 0;
    for (int64_t s = 0; s < steps; ++s) {
      if (mask[example * steps + s] != 0) sum += At(x, (example * steps + s) * channels.divisor() + channel);
    }
    Set(y, i, sum * ShareOf(mask + example * steps, steps));
  }
};

struct AverageOfStepsBackward {
  int64_t steps;
  Divider channels, of_steps;
  const float* mask;
  bool add;
  In dy;
  Out dx;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    int64_t row, example;
    const int64_t channel = channels.Split(i, &row);
    of_steps.Split(row, &example);
    SetOrAdd(dx, i,
             At(dy, example * channels.divisor() + channel) * (mask[row] * ShareOf(mask + example * steps, steps)),
             add);
  }
};

struct FillScores {
  AttentionMasks m;
  Divider keys, queries, heads;
  float value;
  Out scores;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    int64_t row, matrix, example;
    const int64_t key = keys.Split(i, &row);
    const int64_t query = queries.Split(row, &matrix);
    heads.Split(matrix, &example);
    const bool seen = (m.of[0] == nullptr || m.of[0][example * m.queries + query] != 0) &&
                      (m.of[1] == nullptr || m.of[1][example * m.keys + key] != 0) &&
                      (m.of[2] == nullptr || m.of[2][example * m.keys + key] != 0);
    if (!seen) Set(scores, i, value);
  }
};

struct HideUnseen {
  SeenKeys s;
  Divider keys, queries;
  Out scores;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    int64_t row, above;
    const int64_t key = keys.Split(i, &row);
    const int64_t query = queries.Split(row, &above), distance = query < key ? key - query : query - key;
    if ((s.causal && key > query) || distance >= s.window) Set(scores, i, -INFINITY);
  }
};

CAIRN_DEVICE bool RowCounts(const MaskedRows& m, const float* given, int64_t row) {
  return m.mask[row / (m.rows / m.steps)] != 0 && (given == nullptr || given[row] >= 0);
}

// One block.
struct RowWeightsOfMask {
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kSharedBytes = kThreads * 4;
  MaskedRows m;
  const float* given;
  float* weights;
  template <class B>
  CAIRN_DEVICE void operator()(B& block) const {
    int32_t* values = block.template Shared<int32_t>();
    block.ForEachThread([&](int thread) {
      int32_t count = 0;
      for (int64_t row = thread; row < m.rows; row += kThreads) count += RowCounts(m, given, row) ? 1 : 0;
      values[thread] = count;
    });
    const int32_t counted = block.Reduce(values, [](int32_t a, int32_t b) { return a + b; });
    const float each = static_cast<float>(m.examples) / static_cast<float>(counted > 1 ? counted : 1);
    block.ForEachThread([&](int thread) {
      for (int64_t row = thread; row < m.rows; row += kThreads)
        weights[row] = RowCounts(m, given, row) ? (given == nullptr ? 1.0f : given[row]) * each : 0.0f;
    });
  }
};

struct ClearRow {
  MaskedRows m;
  int64_t outputs;
  float* gradients;
  int64_t columns;
  double* results;
  template <int V>
  CAIRN_DEVICE void Do(int64_t row) const {
    if (RowCounts(m, nullptr, row)) return;
    for (int64_t i = 0; i < outputs && gradients != nullptr; ++i) gradients[row * outputs + i] = 0;
    for (int64_t i = 0; i < columns; ++i) results[row * columns + i] = 0;
  }
};

}  // namespace

Error MaskedRowWeights(Stream stream, const MaskedRows& m, const float* given, float* weights) {
  return Launch(stream, 1, RowWeightsOfMask{m, given, weights});
}
Error ClearMaskedRows(Stream stream, const MaskedRows& m, int64_t outputs, float* gradients, int64_t columns,
                      double* results) {
  return LaunchForEach(stream, m.rows, false, ClearRow{m, outputs, gradients, columns, results});
}
Error MaskRows(Stream stream, int64_t rows, int64_t columns, float value, const void* x, float* mask, void* y,
               DType type) {
  return LaunchForEach(stream, rows, false, MaskOfRow{columns, value, {x, type}, mask, {y, type}});
}
Error MultiplyByMask(Stream stream, int64_t rows, int64_t columns, const float* mask, const void* x, void* y,
                     DType type, bool add) {
  const int64_t n = rows * columns;
  return LaunchForEach(stream, n, false, TimesMask{Divider(columns, n), mask, add, {x, type}, {y, type}});
}
Error MaskOfIds(Stream stream, int64_t n, const float* ids, float* mask) {
  return LaunchForEach(stream, n, false, IdMask{ids, mask});
}
Error MaskedAverage(Stream stream, int64_t examples, int64_t steps, int64_t channels, const float* mask, const void* x,
                    void* y, DType type) {
  const int64_t n = examples * channels;
  return LaunchForEach(stream, n, false, AverageOfSteps{steps, Divider(channels, n), mask, {x, type}, {y, type}});
}
Error MaskedAverageBackward(Stream stream, int64_t examples, int64_t steps, int64_t channels, const float* mask,
                            const void* dy, void* dx, DType type, bool add) {
  const int64_t n = examples * steps * channels;
  return LaunchForEach(
      stream, n, false,
      AverageOfStepsBackward{steps, Divider(channels, n), Divider(steps, n), mask, add, {dy, type}, {dx, type}});
}
Error HideScores(Stream stream, const SeenKeys& s, void* scores, DType type) {
  const int64_t n = s.rows * s.keys;
  return LaunchForEach(stream, n, false, HideUnseen{s, Divider(s.keys, n), Divider(s.queries, n), {scores, type}});
}
Error FillMaskedScores(Stream stream, const AttentionMasks& m, float value, void* scores, DType type) {
  const int64_t n = m.examples * m.heads * m.queries * m.keys;
  return LaunchForEach(
      stream, n, false,
      FillScores{m, Divider(m.keys, n), Divider(m.queries, n), Divider(m.heads, n), value, {scores, type}});
}

}  // namespace cairn::cudnn::kernels
