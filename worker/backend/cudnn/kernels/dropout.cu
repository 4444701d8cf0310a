// Dropout: numbers, or whole channels of an example.
#include "worker/backend/cudnn/kernels/philox.h"
#include "worker/backend/cudnn/kernels/places.h"

namespace cairn::cudnn::kernels {
namespace {

struct Drop {
  const StepKey* key;
  Draw draw;
  float keep;
  bool add;
  In x;
  Out y;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    Numbers<V> n = Load<V>(x, i);
    if constexpr (V == 1) {
      n.at[0] *= DropoutFactors(*key, draw, keep, i / 4).Of(i % 4);
    } else {
      CAIRN_UNROLL
      for (int k = 0; k < V; k += 4) {
        const Factors f = DropoutFactors(*key, draw, keep, (i + k) / 4);
        CAIRN_UNROLL
        for (int j = 0; j < 4; ++j) n.at[k + j] *= f.at[j];
      }
    }
    StoreOrAdd<V>(y, i, n, add);
  }
};

struct DropChannels {
  const StepKey* key;
  Draw draw;
  float keep;
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
      const Factors f = DropoutFactors(*key, draw, keep, (of + k) / 4);
      CAIRN_UNROLL
      for (int j = 0; j < 4 && k + j < V; ++j) n.at[k + j] *= V == 1 ? f.Of(of % 4) : f.at[j];
    }
    StoreOrAdd<V>(y, i, n, add);
  }
};

struct Within {
  const StepKey* key;
  int outer;
  StepKey* within;
  template <int V>
  CAIRN_DEVICE void Do(int64_t) const {
    constexpr uint32_t kWithinLayer = 0x4C415952, kDropoutStream = 3;  // dropout.h, common/base/random.h
    StepKey k = *key;
    const PhiloxBlock seed = Philox(k.seed[0], k.seed[1], {{static_cast<uint32_t>(outer), 0, 0, kWithinLayer}});
    const PhiloxBlock stream = Philox(seed.at[0], seed.at[1], {{kDropoutStream, 0, 0, 0}});
    CAIRN_UNROLL
    for (int i = 0; i < 2; ++i) {
      k.seed[i] = seed.at[i];
      k.key[i] = stream.at[i];
    }
    *within = k;
  }
};

}  // namespace

Error KeyWithin(Stream stream, const StepKey* key, int outer, StepKey* within) {
  return LaunchForEach(stream, 1, false, Within{key, outer, within});
}

Error Dropout(Stream stream, int64_t n, const StepKey* key, const Draw& draw, const void* x, void* y, DType type,
              bool add) {
  return LaunchForEach(stream, n, true, Drop{key, draw, 1.0f / (1.0f - draw.rate), add, {x, type}, {y, type}});
}

Error SpatialDropout(Stream stream, int64_t examples, int64_t positions, int64_t channels, const StepKey* key,
                     const Draw& draw, const void* x, void* y, DType type, bool add) {
  const int64_t n = examples * positions * channels;
  return LaunchForEach(stream, n, Wide(channels),
                       DropChannels{key,
                                    draw,
                                    1.0f / (1.0f - draw.rate),
                                    Divider(channels, n),
                                    Divider(positions, n),
                                    add,
                                    {x, type},
                                    {y, type}});
}

}  // namespace cairn::cudnn::kernels
