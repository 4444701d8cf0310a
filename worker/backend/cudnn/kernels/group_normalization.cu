// Group normalization (Wu & He 2018), and layer normalization (Ba et al. 2016), which is one group over one position.
#include <cmath>

#include "worker/backend/cudnn/kernels/columns.h"

namespace cairn::cudnn::kernels {
namespace {

// The numbers of one group of one example: [positions, width] of [positions, channels].
struct GroupPlaces {
  int64_t channels, groups;
  Divider width;
  int64_t count;  // positions * width
  CAIRN_DEVICE int64_t Begin(int64_t group_of_all) const {
    const int64_t example = group_of_all / groups, group = group_of_all - example * groups;
    return example * (count / width.divisor()) * channels + group * width.divisor();
  }
  // Number k of the group: its index relative to Begin, and its channel within the group.
  CAIRN_DEVICE int64_t Place(int64_t k, int64_t* channel) const {
    int64_t position;
    *channel = width.Split(k, &position);
    return position * channels + *channel;
  }
  CAIRN_DEVICE int64_t FirstChannel(int64_t group_of_all) const { return group_of_all % groups * width.divisor(); }
};

// One block a group.
template <int threads>
struct GroupNormalize {
  static constexpr int kThreads = threads;
  static constexpr int kSharedBytes = threads * 4;
  GroupPlaces places;
  float epsilon;
  const float *gamma, *beta;
  In x;
  Out y;
  float *means, *factors;
  template <class B>
  CAIRN_DEVICE void operator()(B& block) const {
    float* values = block.template Shared<float>();
    const int64_t begin = places.Begin(block.index()), first = places.FirstChannel(block.index());
    const float count = static_cast<float>(places.count);
    const auto add = [](float a, float b) { return a + b; };
    block.ForEachThread([&](int thread) {
      float sum = 0;
      int64_t channel;
      for (int64_t k = thread; k < places.count; k += kThreads) sum += At(x, begin + places.Place(k, &channel));
      values[thread] = sum;
    });
    const float mean = block.Reduce(values, add) / count;
    block.ForEachThread([&](int thread) {
      float sum = 0;
      int64_t channel;
      for (int64_t k = thread; k < places.count; k += kThreads) {
        const float d = At(x, begin + places.Place(k, &channel)) - mean;
        sum += d * d;
      }
      values[thread] = sum;
    });
    const float factor = 1.0f / sqrtf(block.Reduce(values, add) / count + epsilon);
    block.ForEachThread([&](int thread) {
      for (int64_t k = thread; k < places.count; k += kThreads) {
        int64_t channel;
        const int64_t i = begin + places.Place(k, &channel);
        const float g = gamma == nullptr ? 1.0f : gamma[first + channel],
                    b = beta == nullptr ? 0.0f : beta[first + channel];
        Set(y, i, (At(x, i) - mean) * factor * g + b);
      }
      if (thread == 0) {
        means[block.index()] = mean;
        factors[block.index()] = factor;
      }
    });
  }
};

template <int threads>
struct GroupNormalizeBackward {
  static constexpr int kThreads = threads;
  static constexpr int kSharedBytes = threads * 4;
  GroupPlaces places;
  bool add_to;
  const float *gamma, *means, *factors;
  In x, dy;
  Out dx;
  template <class B>
  CAIRN_DEVICE void operator()(B& block) const {
    float* values = block.template Shared<float>();
    const int64_t begin = places.Begin(block.index()), first = places.FirstChannel(block.index());
    const float count = static_cast<float>(places.count), mean = means[block.index()], factor = factors[block.index()];
    const auto add = [](float a, float b) { return a + b; };
    // The gradient with respect to the normalized x, dy * gamma, plain and times the normalized x.
    const auto inner = [&](int64_t k, int64_t* i) {
      int64_t channel;
      *i = begin + places.Place(k, &channel);
      return At(dy, *i) * (gamma == nullptr ? 1.0f : gamma[first + channel]);
    };
    block.ForEachThread([&](int thread) {
      float sum = 0;
      int64_t i;
      for (int64_t k = thread; k < places.count; k += kThreads) sum += inner(k, &i);
      values[thread] = sum;
    });
    const float plain = block.Reduce(values, add) / count;
    block.ForEachThread([&](int thread) {
      float sum = 0;
      int64_t i;
      for (int64_t k = thread; k < places.count; k += kThreads) {
        const float d = inner(k, &i);
        sum += d * ((At(x, i) - mean) * factor);
      }
      values[thread] = sum;
    });
    const float normalized = block.Reduce(values, add) / count;
    block.ForEachThread([&](int thread) {
      int64_t i;
      for (int64_t k = thread; k < places.count; k += kThreads) {
        const float d = inner(k, &i);
        SetOrAdd(dx, i, factor * (d - plain - (At(x, i) - mean) * factor * normalized), add_to);
      }
    });
  }
};

// Sums over examples and positions of dy * normalized x, and of dy.
struct GroupGradientSums {
  static constexpr int kValues = 2;
  template <int V>
  struct Values {
    float at[kValues][V];
    int64_t group;
  };
  int64_t channels, groups, width;
  Divider positions;
  const float *means, *factors;
  In x, dy;
  float *dgamma, *dbeta;
  template <int V>
  CAIRN_DEVICE Values<V> Begin(int64_t, int64_t channel) const {
    Values<V> v = {};
    v.group = channel / width;
    return v;
  }
  template <int V>
  CAIRN_DEVICE void Add(Values<V>& v, int64_t, int64_t row, int64_t channel) const {
    const int64_t i = row * channels + channel, of = positions(row) * groups + v.group;
    const Numbers<V> n = Load<V>(x, i), d = Load<V>(dy, i);
    const float mean = means[of], factor = factors[of];
    CAIRN_UNROLL
    for (int k = 0; k < V; ++k) {
      v.at[0][k] += d.at[k] * ((n.at[k] - mean) * factor);
      v.at[1][k] += d.at[k];
    }
  }
  template <int V>
  CAIRN_DEVICE void End(Values<V>&) const {}
  CAIRN_DEVICE static void Join(float* a, const float* b) {
    a[0] += b[0];
    a[1] += b[1];
  }
  CAIRN_DEVICE void Finish(int64_t, int64_t channel, const float* v) const {
    if (dgamma != nullptr) dgamma[channel] = v[0];
    if (dbeta != nullptr) dbeta[channel] = v[1];
  }
};

// Eight neighbouring channels belong to one group.
ColumnShape Shape(int64_t rows, int64_t channels, int64_t groups) {
  return ShapeOfColumns(1, rows, channels, Wide(channels / groups));
}

}  // namespace

Error GroupNormalization(Stream stream, int64_t examples, int64_t positions, int64_t channels, int64_t groups,
                         float epsilon, const void* x, const float* gamma, const float* beta, void* y, float* mean,
                         float* factor, DType type) {
  const int64_t width = channels / groups, count = positions * width;
  const GroupPlaces places{channels, groups, Divider(width, count), count};
  if (count <= kWarpCountMax) {
    return Launch(stream, examples * groups,
                  GroupNormalize<32>{places, epsilon, gamma, beta, {x, type}, {y, type}, mean, factor});
  }
  return Launch(stream, examples * groups,
                GroupNormalize<kBlockThreads>{places, epsilon, gamma, beta, {x, type}, {y, type}, mean, factor});
}

int64_t GroupNormalizationScratch(int64_t examples, int64_t positions, int64_t channels) {
  // The narrow shape or the wide one may have more chunks, depending on the groups.
  const int64_t rows = examples * positions;
  const int64_t narrow = ColumnScratch<GroupGradientSums>(Shape(rows, channels, channels));
  if (!Wide(channels)) return narrow;
  const int64_t wide = ColumnScratch<GroupGradientSums>(Shape(rows, channels, 1));
  return wide > narrow ? wide : narrow;
}

Error GroupNormalizationBackward(Stream stream, int64_t examples, int64_t positions, int64_t channels, int64_t groups,
                                 const void* x, const float* gamma, const float* mean, const float* factor,
                                 const void* dy, void* dx, float* dgamma, float* dbeta, float* scratch, DType type,
                                 bool add) {
  const int64_t width = channels / groups, count = positions * width, rows = examples * positions;
  if (dgamma != nullptr || dbeta != nullptr) {
    const GroupGradientSums sums{channels,   groups, width, Divider(positions, rows), mean, factor, {x, type},
                                 {dy, type}, dgamma, dbeta};
    if (const Error error = LaunchColumns(stream, Shape(rows, channels, groups), sums, scratch); error != 0)
      return error;
  }
  if (dx == nullptr) return 0;
  const GroupPlaces places{channels, groups, Divider(width, count), count};
  if (count <= kWarpCountMax) {
    return Launch(stream, examples * groups,
                  GroupNormalizeBackward<32>{places, add, gamma, mean, factor, {x, type}, {dy, type}, {dx, type}});
  }
  return Launch(
      stream, examples * groups,
      GroupNormalizeBackward<kBlockThreads>{places, add, gamma, mean, factor, {x, type}, {dy, type}, {dx, type}});
}

}  // namespace cairn::cudnn::kernels
