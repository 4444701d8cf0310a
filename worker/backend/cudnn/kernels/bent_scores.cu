// Scores of attention that are sums of tanh, and their gradients.
#include <cmath>

#include "worker/backend/cudnn/kernels/numbers.h"
#include "worker/backend/cudnn/kernels/tensors.h"

namespace cairn::cudnn::kernels {
namespace {

struct BentPlaces {
  BentScores b;
  In q, k;
  CAIRN_DEVICE float Scale(int64_t i) const { return b.scale == nullptr ? 1.0f : b.scale[i]; }
  CAIRN_DEVICE float Inner() const { return b.additive ? 1.0f : Scale(0); }
  CAIRN_DEVICE float Outer(int64_t i) const { return b.additive ? Scale(i) : (b.weight == nullptr ? 1.0f : *b.weight); }
  // q_ti + k_si; rows count those of all examples.
  CAIRN_DEVICE float Sum(int64_t query_row, int64_t key_row, int64_t i) const {
    return At(q, query_row * b.features + i) + At(k, key_row * b.features + i);
  }
};

struct Score {
  BentPlaces places;
  Divider keys, queries;
  Out scores;
  template <int V>
  CAIRN_DEVICE void Do(int64_t n) const {
    int64_t query_row, example;
    const int64_t key = keys.Split(n, &query_row);
    queries.Split(query_row, &example);
    const int64_t key_row = example * keys.divisor() + key;
    const float inner = places.Inner();
    float sum = 0;
    for (int64_t i = 0; i < places.b.features; ++i)
      sum += places.Outer(i) * tanhf(inner * places.Sum(query_row, key_row, i));
    Set(scores, n, sum);
  }
};

// One number of a query or of a key: neighbours are side by side in memory.
struct ScoreBackward {
  BentPlaces places;
  bool of_queries, add;
  Divider features, rows;  // rows: of an example, of what the gradient is of
  In d;
  Out dx;
  template <int V>
  CAIRN_DEVICE void Do(int64_t n) const {
    int64_t row, example;
    const int64_t i = features.Split(n, &row);
    const int64_t own = rows.Split(row, &example), others = of_queries ? places.b.keys : places.b.queries;
    const float inner = places.Inner(), factor = places.Outer(i) * inner;
    float sum = 0;
    for (int64_t other = 0; other < others; ++other) {
      const int64_t query_row = of_queries ? row : example * others + other,
                    key_row = of_queries ? example * others + other : row, key = of_queries ? other : own;
      const float bent = tanhf(inner * places.Sum(query_row, key_row, i));
      sum += At(d, query_row * places.b.keys + key) * factor * (1 - bent * bent);
    }
    SetOrAdd(dx, n, sum, add);
  }
};

struct ScoreSums {
  BentPlaces places;
  Divider features, queries;
  In d;
  float *bent, *slopes;
  template <int V>
  CAIRN_DEVICE void Do(int64_t n) const {
    int64_t row, example;
    const int64_t i = features.Split(n, &row);
    queries.Split(row, &example);
    const float inner = places.Inner(), outer = places.Outer(i);
    float of_bent = 0, of_slopes = 0;
    for (int64_t key = 0; key < places.b.keys; ++key) {
      const float sum = places.Sum(row, example * places.b.keys + key, i), at = tanhf(inner * sum),
                  g = At(d, row * places.b.keys + key);
      of_bent += g * at;
      of_slopes += g * outer * (1 - at * at) * sum;
    }
    bent[n] = of_bent;
    if (slopes != nullptr) slopes[n] = of_slopes;
  }
};

}  // namespace

Error ScoreBent(Stream stream, const BentScores& b, const void* q, const void* k, void* scores, DType type) {
  const int64_t n = b.examples * b.queries * b.keys;
  return LaunchForEach(stream, n, false,
                       Score{{b, {q, type}, {k, type}}, Divider(b.keys, n), Divider(b.queries, n), {scores, type}});
}

Error ScoreBentBackward(Stream stream, const BentScores& b, bool of_queries, const void* q, const void* k,
                        const void* d, void* dx, DType type, bool add) {
  const int64_t rows = of_queries ? b.queries : b.keys, n = b.examples * rows * b.features;
  return LaunchForEach(
      stream, n, false,
      ScoreBackward{
          {b, {q, type}, {k, type}}, of_queries, add, Divider(b.features, n), Divider(rows, n), {d, type}, {dx, type}});
}

Error ScoreBentSums(Stream stream, const BentScores& b, const void* q, const void* k, const void* d, float* bent,
                    float* slopes, DType type) {
  const int64_t n = b.examples * b.queries * b.features;
  return LaunchForEach(
      stream, n, false,
      ScoreSums{{b, {q, type}, {k, type}}, Divider(b.features, n), Divider(b.queries, n), {d, type}, bent, slopes});
}

}  // namespace cairn::cudnn::kernels
