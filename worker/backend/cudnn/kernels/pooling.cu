// Pooling. In the backward pass every input number visits the windows that contain it, in their order.
#include "worker/backend/cudnn/kernels/columns.h"
#include "worker/backend/cudnn/kernels/window.h"

namespace cairn::cudnn::kernels {
namespace {

// The index within its window of the first largest number, for V channels.
template <int V>
struct Largest {
  Numbers<V> value;
  int32_t place[V];
};
template <int V>
CAIRN_DEVICE Largest<V> FindLargest(const Geometry& g, bool zeros, const In& x, int64_t example, int64_t out_y,
                                    int64_t out_x, int64_t channel) {
  Largest<V> best = {};
  bool any = false;
  g.ForEachTap<true>(out_y, out_x, [&](int32_t y, int32_t column, int32_t place) {
    const bool inside = g.Inside(y, column);
    if (!inside && !zeros) return;
    Numbers<V> n = {};
    if (inside) n = Load<V>(x, g.in.Index(example, y, column, channel));
    CAIRN_UNROLL
    for (int k = 0; k < V; ++k) {
      if (any && !(n.at[k] > best.value.at[k])) continue;
      best.value.at[k] = n.at[k];
      best.place[k] = place;
    }
    any = true;
  });
  return best;
}

// V indices of one byte each, in one access.
template <int V>
CAIRN_DEVICE uint64_t LoadPlaces(const uint8_t* places, int64_t i) {
  if constexpr (V == 1) return places[i];
  return *reinterpret_cast<const uint64_t*>(places + i);
}
template <int V>
CAIRN_DEVICE void StorePlaces(uint8_t* places, int64_t i, const int32_t* at) {
  if constexpr (V == 1) {
    places[i] = static_cast<uint8_t>(at[0]);
  } else {
    uint64_t all = 0;
    CAIRN_UNROLL
    for (int k = 0; k < V; ++k) all |= static_cast<uint64_t>(at[k]) << 8 * k;
    *reinterpret_cast<uint64_t*>(places + i) = all;
  }
}

struct MaxPool {
  Geometry g;
  bool zeros;
  uint8_t* argmax;
  In x;
  Out y;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    const Place p = g.out.Of(i);
    const Largest<V> best = FindLargest<V>(g, zeros, x, p.example, p.y, p.x, p.channel);
    Store<V>(y, i, best.value);
    if (argmax != nullptr) StorePlaces<V>(argmax, i, best.place);
  }
};

struct MaxPoolBackward {
  Geometry g;
  const uint8_t* argmax;  // null: looked for again, in x
  bool add;
  In x, dy;
  Out dx;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    const Place p = g.in.Of(i);
    Numbers<V> sum = {};
    g.ForEachWindow(p.y, p.x, [&](int32_t out_y, int32_t out_x, int32_t place) {
      const int64_t of = g.out.Index(p.example, out_y, out_x, p.channel);
      const Numbers<V> d = Load<V>(dy, of);
      if (argmax != nullptr) {
        const uint64_t places = LoadPlaces<V>(argmax, of);
        CAIRN_UNROLL
        for (int k = 0; k < V; ++k) sum.at[k] += static_cast<int32_t>(places >> 8 * k & 0xff) == place ? d.at[k] : 0.0f;
      } else {
        const Largest<V> best = FindLargest<V>(g, false, x, p.example, out_y, out_x, p.channel);
        CAIRN_UNROLL
        for (int k = 0; k < V; ++k) sum.at[k] += best.place[k] == place ? d.at[k] : 0.0f;
      }
    });
    StoreOrAdd<V>(dx, i, sum, add);
  }
};

struct AveragePool {
  Geometry g;
  In x;
  Out y;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    const Place p = g.out.Of(i);
    Numbers<V> sum = {};
    int32_t taps = 0;
    g.ForEachTap(p.y, p.x, [&](int32_t row, int32_t column, int32_t) {
      const Numbers<V> n = Load<V>(x, g.in.Index(p.example, row, column, p.channel));
      CAIRN_UNROLL
      for (int k = 0; k < V; ++k) sum.at[k] += n.at[k];
      ++taps;
    });
    CAIRN_UNROLL
    for (int k = 0; k < V; ++k) sum.at[k] /= static_cast<float>(taps);
    Store<V>(y, i, sum);
  }
};

// How many positions of the picture the window covers along one axis.
CAIRN_DEVICE int32_t Covered(int32_t begin, int32_t kernel, int32_t dilation, int32_t size) {
  int32_t covered = 0;
  for (int32_t k = 0; k < kernel; ++k) covered += begin + k * dilation >= 0 && begin + k * dilation < size ? 1 : 0;
  return covered;
}

struct AveragePoolBackward {
  Geometry g;
  bool add;
  In dy;
  Out dx;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    const Place p = g.in.Of(i);
    Numbers<V> sum = {};
    g.ForEachWindow(p.y, p.x, [&](int32_t out_y, int32_t out_x, int32_t) {
      const float taps =
          static_cast<float>(Covered(out_y * g.strides[0] - g.pad[0], g.kernel[0], g.dilation[0], g.height()) *
                             Covered(out_x * g.strides[1] - g.pad[1], g.kernel[1], g.dilation[1], g.width()));
      const Numbers<V> d = Load<V>(dy, g.out.Index(p.example, out_y, out_x, p.channel));
      CAIRN_UNROLL
      for (int k = 0; k < V; ++k) sum.at[k] += d.at[k] / taps;
    });
    StoreOrAdd<V>(dx, i, sum, add);
  }
};

struct AverageSums {
  static constexpr int kValues = 1;
  template <int V>
  struct Values {
    float at[kValues][V];
  };
  int64_t positions, channels;
  In x;
  Out y;
  template <int V>
  CAIRN_DEVICE Values<V> Begin(int64_t, int64_t) const {
    return {};
  }
  template <int V>
  CAIRN_DEVICE void Add(Values<V>& v, int64_t example, int64_t position, int64_t channel) const {
    const Numbers<V> n = Load<V>(x, (example * positions + position) * channels + channel);
    CAIRN_UNROLL
    for (int k = 0; k < V; ++k) v.at[0][k] += n.at[k];
  }
  template <int V>
  CAIRN_DEVICE void End(Values<V>&) const {}
  CAIRN_DEVICE static void Join(float* a, const float* b) { a[0] += b[0]; }
  CAIRN_DEVICE void Finish(int64_t example, int64_t channel, const float* v) const {
    Set(y, example * channels + channel, v[0] / static_cast<float>(positions));
  }
};

struct SpreadAverage {
  Divider channels, positions;
  bool add;
  In dy;
  Out dx;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    int64_t row, example;
    const int64_t channel = channels.Split(i, &row);
    positions.Split(row, &example);
    Numbers<V> d = Load<V>(dy, example * channels.divisor() + channel);
    CAIRN_UNROLL
    for (int k = 0; k < V; ++k) d.at[k] /= static_cast<float>(positions.divisor());
    StoreOrAdd<V>(dx, i, d, add);
  }
};

}  // namespace

Error MaxPooling(Stream stream, const Window& w, bool zeros, const void* x, void* y, uint8_t* argmax, DType type) {
  return LaunchForEach(stream, Count(w, w.out), Wide(w.in[2]),
                       MaxPool{Geometry(w), zeros, argmax, {x, type}, {y, type}});
}

Error MaxPoolingBackward(Stream stream, const Window& w, const uint8_t* argmax, const void* dy, void* dx, DType type,
                         bool add) {
  return LaunchForEach(stream, Count(w, w.in), Wide(w.in[2]),
                       MaxPoolBackward{Geometry(w), argmax, add, {nullptr, type}, {dy, type}, {dx, type}});
}

Error MaxPoolingBackwardSearch(Stream stream, const Window& w, const void* x, const void* dy, void* dx, DType type,
                               bool add) {
  return LaunchForEach(stream, Count(w, w.in), Wide(w.in[2]),
                       MaxPoolBackward{Geometry(w), nullptr, add, {x, type}, {dy, type}, {dx, type}});
}

Error AveragePooling(Stream stream, const Window& w, const void* x, void* y, DType type) {
  return LaunchForEach(stream, Count(w, w.out), Wide(w.in[2]), AveragePool{Geometry(w), {x, type}, {y, type}});
}

Error AveragePoolingBackward(Stream stream, const Window& w, const void* dy, void* dx, DType type, bool add) {
  return LaunchForEach(stream, Count(w, w.in), Wide(w.in[2]),
                       AveragePoolBackward{Geometry(w), add, {dy, type}, {dx, type}});
}

Error GlobalAverage(Stream stream, int64_t examples, int64_t positions, int64_t channels, const void* x, void* y,
                    DType type) {
  ColumnShape s = ShapeOfColumns(examples, positions, channels, Wide(channels));
  s.chunks = 1;  // an example is not cut, so that no memory is needed between two kernels
  s.chunk_rows = positions;
  return LaunchColumns(stream, s, AverageSums{positions, channels, {x, type}, {y, type}}, nullptr);
}

Error GlobalAverageBackward(Stream stream, int64_t examples, int64_t positions, int64_t channels, const void* dy,
                            void* dx, DType type, bool add) {
  const int64_t n = examples * positions * channels;
  return LaunchForEach(stream, n, Wide(channels),
                       SpreadAverage{Divider(channels, n), Divider(positions, n), add, {dy, type}, {dx, type}});
}

}  // namespace cairn::cudnn::kernels
