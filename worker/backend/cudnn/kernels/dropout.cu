// Dropout: numbers, or whole channels of an example.
#include "worker/backend/cudnn/kernels/philox.h"
#include "worker/backend/cudnn/kernels/places.h"

namespace cairn::cudnn::kernels {
namespace {

struct Drop {
  const StepKey* key;
  int node;
  float rate, keep;
  bool add;
  In x;
  Out y;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    Numbers<V> n = Load<V>(x, i);
    if constexpr (V == 1) {
      n.at[0] *= DropoutFactors(*key, node, rate, keep, i / 4).Of(i % 4);
    } else {
      CAIRN_UNROLL
      for (int k = 0; k < V; k += 4) {
        const Factors f = DropoutFactors(*key, node, rate, keep, (i + k) / 4);
        CAIRN_UNROLL
        for (int j = 0; j < 4; ++j) n.at[k + j] *= f.at[j];
      }
    }
    StoreOrAdd<V>(y, i, n, add);
  }
};

struct DropChannels {
  const StepKey* key;
  int node;
  float rate, keep;
  Divider channels, positions;
  bool add;
  In x;
  Out y;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    int64_t row, example;
    const int64_t channel = channels.Split(i, &row);
    positions.Split(row, &example);
    const int64_t of = example * channels.divisor() + channel;
    Numbers<V> n = Load<V>(x, i);
    CAIRN_UNROLL
    for (int k = 0; k < V; k += 4) {
      const Factors f = DropoutFactors(*key, node, rate, keep, (of + k) / 4);
      CAIRN_UNROLL
      for (int j = 0; j < 4 && k + j < V; ++j) n.at[k + j] *= V == 1 ? f.Of(of % 4) : f.at[j];
    }
    StoreOrAdd<V>(y, i, n, add);
  }
};

}  // namespace

Error Dropout(Stream stream, int64_t n, const StepKey* key, int node, float rate, const void* x, void* y, DType type,
              bool add) {
  return LaunchForEach(stream, n, true, Drop{key, node, rate, 1.0f / (1.0f - rate), add, {x, type}, {y, type}});
}

Error SpatialDropout(Stream stream, int64_t examples, int64_t positions, int64_t channels, const StepKey* key, int node,
                     float rate, const void* x, void* y, DType type, bool add) {
  const int64_t n = examples * positions * channels;
  return LaunchForEach(stream, n, Wide(channels),
                       DropChannels{key,
                                    node,
                                    rate,
                                    1.0f / (1.0f - rate),
                                    Divider(channels, n),
                                    Divider(positions, n),
                                    add,
                                    {x, type},
                                    {y, type}});
}

}  // namespace cairn::cudnn::kernels
