// Batch normalization (Ioffe & Szegedy 2015) over [rows, channels].
//
// The type is a constant of each kernel: a thread's loads are issued side by side only where nothing is decided between
// them.
#include <cmath>

#include "worker/backend/cudnn/kernels/columns.h"

namespace cairn::cudnn::kernels {
namespace {

// Mean and variance in one pass: each thread takes its first number as an origin, so that squares stay small, and
// threads' results are joined as in Chan, Golub & LeVeque 1983. Values: count, mean, sum of squares around it.
template <DType T>
struct Moments {
  static constexpr int kValues = 3;
  template <int V>
  struct Values {
    float at[kValues][V];
    Numbers<V> origin;
    bool any;
  };
  int64_t channels;
  const void* x;
  float *mean, *variance;
  MovingAverages moving;
  template <int V>
  CAIRN_DEVICE Values<V> Begin(int64_t, int64_t) const {
    return {};
  }
  template <int V>
  CAIRN_DEVICE void Add(Values<V>& v, int64_t, int64_t row, int64_t channel) const {
    const Numbers<V> n = Load<V>({x, T}, row * channels + channel);
    if (!v.any) v.origin = n;
    v.any = true;
    CAIRN_UNROLL
    for (int k = 0; k < V; ++k) {
      const float d = n.at[k] - v.origin.at[k];
      v.at[0][k] += 1;
      v.at[1][k] += d;
      v.at[2][k] += d * d;
    }
  }
  template <int V>
  CAIRN_DEVICE void End(Values<V>& v) const {
    if (!v.any) return;
    CAIRN_UNROLL
    for (int k = 0; k < V; ++k) {
      const float shift = v.at[1][k] / v.at[0][k];
      v.at[2][k] = fmaxf(v.at[2][k] - v.at[1][k] * shift, 0.0f);
      v.at[1][k] = v.origin.at[k] + shift;
    }
  }
  CAIRN_DEVICE static void Join(float* a, const float* b) {
    if (b[0] == 0) return;
    const float count = a[0] + b[0], share = b[0] / count, difference = b[1] - a[1];
    a[2] += b[2] + difference * difference * a[0] * share;
    a[1] = a[0] == 0 ? b[1] : a[1] + difference * share;
    a[0] = count;
  }
  CAIRN_DEVICE void Finish(int64_t, int64_t channel, const float* v) const {
    mean[channel] = v[1];
    variance[channel] = v[2] / v[0];
    if (moving.mean == nullptr) return;
    moving.mean[channel] = moving.examples * (moving.bias == nullptr ? v[1] : v[1] + moving.bias[channel]);
    moving.variance[channel] = moving.examples * variance[channel];
  }
};

CAIRN_DEVICE float Factor(float variance, float epsilon) { return 1.0f / sqrtf(variance + epsilon); }

// The factor and the offset of each of V channels.
template <int V>
struct Line {
  Numbers<V> mean, factor, beta;
  Line() = default;
  CAIRN_DEVICE Line(const Normalized& n, int64_t channel) {
    CAIRN_UNROLL
    for (int k = 0; k < V; ++k) {
      mean.at[k] = n.mean[channel + k];
      factor.at[k] = Factor(n.variance[channel + k], n.epsilon) * (n.gamma == nullptr ? 1.0f : n.gamma[channel + k]);
      beta.at[k] = n.beta == nullptr ? 0.0f : n.beta[channel + k];
    }
  }
  CAIRN_DEVICE float Of(float x, int k) const { return (x - mean.at[k]) * factor.at[k] + beta.at[k]; }
};

// Whether a relu passes y: whether y is positive after rounding to the type.
template <DType T>
CAIRN_DEVICE bool Passes(float y) {
  return y > (T == DType::kFloat32 ? 0.0f : T == DType::kBFloat16 ? 0x1p-134f : 0x1p-25f);
}

// The bits of numbers i .. i + V, in the lowest places.
template <int V>
CAIRN_DEVICE uint32_t LoadPassed(const uint8_t* passed, int64_t i) {
  return passed[V == 1 ? i : i / kWide];
}
template <int V>
CAIRN_DEVICE void StorePassed(uint8_t* passed, int64_t i, uint32_t bits) {
  passed[V == 1 ? i : i / kWide] = static_cast<uint8_t>(bits);
}

// kTwo: there is a b; otherwise there may be a residual.
template <DType T, bool kTwo>
struct Normalize {
  Normalized a, b;
  const void* residual;
  bool relu;
  void* y;
  uint8_t* passed;
  template <int V>
  struct Column {
    Line<V> a, b;
  };
  template <int V>
  struct Fetched {
    Numbers<V> a, b;  // x of a, and of b or the residual
  };
  template <int V>
  CAIRN_DEVICE Column<V> Of(int64_t channel) const {
    Column<V> c;
    c.a = Line<V>(a, channel);
    if constexpr (kTwo) c.b = Line<V>(b, channel);
    return c;
  }
  template <int V>
  CAIRN_DEVICE Fetched<V> Fetch(int64_t i) const {
    Fetched<V> f = {};
    f.a = Load<V>({a.x, T}, i);
    if constexpr (kTwo) {
      f.b = Load<V>({b.x, T}, i);
    } else if (residual != nullptr) {
      f.b = Load<V>({residual, T}, i);
    }
    return f;
  }
  template <int V>
  CAIRN_DEVICE void Do(const Column<V>& c, int64_t i, const Fetched<V>& f) const {
    Numbers<V> n;
    CAIRN_UNROLL
    for (int k = 0; k < V; ++k) n.at[k] = c.a.Of(f.a.at[k], k);
    if (kTwo || residual != nullptr) {
      CAIRN_UNROLL
      for (int k = 0; k < V; ++k) n.at[k] += kTwo ? c.b.Of(f.b.at[k], k) : f.b.at[k];
    }
    if (relu) {
      uint32_t bits = 0;
      CAIRN_UNROLL
      for (int k = 0; k < V; ++k) {
        bits |= static_cast<uint32_t>(Passes<T>(n.at[k])) << k;
        n.at[k] = n.at[k] < 0 ? 0.0f : n.at[k];
      }
      if (passed != nullptr) StorePassed<V>(passed, i, bits);
    }
    Store<V>({y, T}, i, n);
  }
};

// The part of dy that backward uses: all of it, or what a relu passed. Without bits this is computed again from x if
// there is only one (not kTwo).
template <DType T, bool kTwo>
struct Masked {
  const void* dy;
  const uint8_t* passed;
  bool again;
  Masked(bool relu, const uint8_t* bits, const void* gradient)
      : dy(gradient), passed(bits), again(relu && bits == nullptr) {}

  template <int V>
  struct Fetched {
    Numbers<V> dy;
    uint32_t bits;
  };
  template <int V>
  CAIRN_DEVICE Fetched<V> Fetch(int64_t i) const {
    return {Load<V>({dy, T}, i), passed == nullptr ? 0xffu : LoadPassed<V>(passed, i)};
  }
  template <int V>
  CAIRN_DEVICE Numbers<V> Of(const Fetched<V>& f, const Line<V>& line, const Numbers<V>& x) const {
    Numbers<V> d;
    CAIRN_UNROLL
    for (int k = 0; k < V; ++k) {
      bool passes = (f.bits >> k & 1) != 0;
      if constexpr (!kTwo) passes &= !again | Passes<T>(line.Of(x.at[k], k));  // decides nothing: no branch
      d.at[k] = passes ? f.dy.at[k] : 0.0f;
    }
    return d;
  }
};

// Sums of dy * normalized x, of a and b, and of dy.
template <DType T, bool kTwo>
struct GradientSums {
  static constexpr int kValues = kTwo ? 3 : 2;
  template <int V>
  struct Values {
    float at[kValues][V];
    Line<V> a;
    Numbers<V> mean;  // of b
  };
  int64_t channels;
  Normalized a, b;
  Masked<T, kTwo> dy;
  NormalizedGradient to_a, to_b;
  template <int V>
  CAIRN_DEVICE Values<V> Begin(int64_t, int64_t channel) const {
    Values<V> v = {};
    v.a = Line<V>(a, channel);
    if constexpr (kTwo) {
      CAIRN_UNROLL
      for (int k = 0; k < V; ++k) v.mean.at[k] = b.mean[channel + k];
    }
    return v;
  }
  template <int V>
  CAIRN_DEVICE void Add(Values<V>& v, int64_t, int64_t row, int64_t channel) const {
    const int64_t i = row * channels + channel;
    const Numbers<V> x = Load<V>({a.x, T}, i);
    const Numbers<V> d = dy.template Of<V>(dy.template Fetch<V>(i), v.a, x);
    CAIRN_UNROLL
    for (int k = 0; k < V; ++k) {
      v.at[0][k] += d.at[k];
      v.at[1][k] += d.at[k] * (x.at[k] - v.a.mean.at[k]);
    }
    if constexpr (kTwo) {
      const Numbers<V> other = Load<V>({b.x, T}, i);
      CAIRN_UNROLL
      for (int k = 0; k < V; ++k) v.at[2][k] += d.at[k] * (other.at[k] - v.mean.at[k]);
    }
  }
  template <int V>
  CAIRN_DEVICE void End(Values<V>&) const {}
  CAIRN_DEVICE static void Join(float* a, const float* b) {
    CAIRN_UNROLL
    for (int k = 0; k < kValues; ++k) a[k] += b[k];
  }
  CAIRN_DEVICE void Finish(int64_t, int64_t channel, const float* v) const {
    to_a.dbeta[channel] = v[0];
    to_a.dgamma[channel] = v[1] * Factor(a.variance[channel], a.epsilon);
    if constexpr (kTwo) {
      to_b.dbeta[channel] = v[0];
      to_b.dgamma[channel] = v[2] * Factor(b.variance[channel], b.epsilon);
    }
  }
};

// Section 3 of the paper, with the terms through mean and variance collected.
template <DType T, bool kTwo>
struct NormalizeBackward {
  float rows;
  bool constant, add_residual;
  Normalized a, b;
  Masked<T, kTwo> dy;
  NormalizedGradient to_a, to_b;
  void* dresidual;
  // For one of the two.
  template <int V>
  struct Side {
    Line<V> line;
    Numbers<V> of_normalized;
    Side() = default;
    CAIRN_DEVICE Side(const Normalized& n, const NormalizedGradient& to, int64_t channel, bool constant, float rows)
        : line(n, channel) {
      CAIRN_UNROLL
      for (int k = 0; k < V; ++k) {
        const float factor = Factor(n.variance[channel + k], n.epsilon);
        of_normalized.at[k] = constant ? 0.0f : to.dgamma[channel + k] / rows * factor;
      }
    }
    CAIRN_DEVICE Numbers<V> Of(const Numbers<V>& d, const Numbers<V>& shift, const Numbers<V>& x, bool constant) const {
      Numbers<V> dx;
      CAIRN_UNROLL
      for (int k = 0; k < V; ++k) {
        dx.at[k] = line.factor.at[k] *
                   (constant ? d.at[k] : d.at[k] - shift.at[k] - (x.at[k] - line.mean.at[k]) * of_normalized.at[k]);
      }
      return dx;
    }
  };
  template <int V>
  struct Column {
    Side<V> a, b;
    Numbers<V> shift;
  };
  template <int V>
  struct Fetched {
    Numbers<V> a, b;
    typename Masked<T, kTwo>::template Fetched<V> dy;
  };
  template <int V>
  CAIRN_DEVICE Column<V> Of(int64_t channel) const {
    Column<V> c;
    c.a = Side<V>(a, to_a, channel, constant, rows);
    if constexpr (kTwo) c.b = Side<V>(b, to_b, channel, constant, rows);
    CAIRN_UNROLL
    for (int k = 0; k < V; ++k) c.shift.at[k] = constant ? 0.0f : to_a.dbeta[channel + k] / rows;
    return c;
  }
  template <int V>
  CAIRN_DEVICE Fetched<V> Fetch(int64_t i) const {
    Fetched<V> f = {};
    f.dy = dy.template Fetch<V>(i);
    f.a = Load<V>({a.x, T}, i);
    if constexpr (kTwo) f.b = Load<V>({b.x, T}, i);
    return f;
  }
  template <int V>
  CAIRN_DEVICE void Do(const Column<V>& c, int64_t i, const Fetched<V>& f) const {
    const Numbers<V> d = dy.template Of<V>(f.dy, c.a.line, f.a);
    if (to_a.dx != nullptr) StoreOrAdd<V>({to_a.dx, T}, i, c.a.Of(d, c.shift, f.a, constant), to_a.add);
    if constexpr (kTwo) {
      if (to_b.dx != nullptr) StoreOrAdd<V>({to_b.dx, T}, i, c.b.Of(d, c.shift, f.b, constant), to_b.add);
    } else if (dresidual != nullptr) {
      StoreOrAdd<V>({dresidual, T}, i, d, add_residual);
    }
  }
};

ColumnShape Shape(int64_t rows, int64_t channels) { return ShapeOfColumns(1, rows, channels, Wide(channels)); }

// Calls launch.operator()<T>() for the type.
template <class Fn>
Error WithType(DType type, Fn launch) {
  switch (type) {
    case DType::kBFloat16: return launch.template operator()<DType::kBFloat16>();
    case DType::kFloat16: return launch.template operator()<DType::kFloat16>();
    default: return launch.template operator()<DType::kFloat32>();
  }
}

}  // namespace

int64_t BatchStatisticsScratch(int64_t rows, int64_t channels) {
  return ColumnScratch<Moments<DType::kFloat32>>(Shape(rows, channels));
}

Error BatchStatistics(Stream stream, int64_t rows, int64_t channels, const void* x, float* mean, float* variance,
                      const MovingAverages& moving, float* scratch, DType type) {
  return WithType(type, [&]<DType T>() {
    return LaunchColumns(stream, Shape(rows, channels), Moments<T>{channels, x, mean, variance, moving}, scratch);
  });
}

int64_t PassedBytes(int64_t rows, int64_t channels) { return rows * channels / (Wide(channels) ? kWide : 1); }

Error BatchNormalization(Stream stream, int64_t rows, int64_t channels, const Normalized& a, const Normalized& b,
                         const void* residual, bool relu, void* y, uint8_t* passed, DType type) {
  return WithType(type, [&]<DType T>() {
    return b.x == nullptr
               ? LaunchForEachRow(stream, rows, channels, Normalize<T, false>{a, b, residual, relu, y, passed})
               : LaunchForEachRow(stream, rows, channels, Normalize<T, true>{a, b, nullptr, relu, y, passed});
  });
}

Error BatchNormalizationSums(Stream stream, int64_t rows, int64_t channels, const Normalized& a, const Normalized& b,
                             bool relu, const uint8_t* passed, const void* dy, const NormalizedGradient& to_a,
                             const NormalizedGradient& to_b, float* scratch, DType type) {
  static_assert(GradientSums<DType::kFloat32, true>::kValues <= Moments<DType::kFloat32>::kValues,
                "one scratch for both");
  return WithType(type, [&]<DType T>() {
    const ColumnShape shape = Shape(rows, channels);
    return b.x == nullptr
               ? LaunchColumns(stream, shape, GradientSums<T, false>{channels, a, b, {relu, passed, dy}, to_a, to_b},
                               scratch)
               : LaunchColumns(stream, shape, GradientSums<T, true>{channels, a, b, {relu, passed, dy}, to_a, to_b},
                               scratch);
  });
}

Error BatchNormalizationBackward(Stream stream, int64_t rows, int64_t channels, const Normalized& a,
                                 const Normalized& b, bool relu, const uint8_t* passed, const void* dy,
                                 const NormalizedGradient& to_a, const NormalizedGradient& to_b, bool constant,
                                 void* dresidual, bool add_residual, DType type) {
  return WithType(type, [&]<DType T>() {
    const auto n = static_cast<float>(rows);
    if (b.x == nullptr) {
      return LaunchForEachRow(
          stream, rows, channels,
          NormalizeBackward<T, false>{n, constant, add_residual, a, b, {relu, passed, dy}, to_a, to_b, dresidual});
    }
    return LaunchForEachRow(
        stream, rows, channels,
        NormalizeBackward<T, true>{n, constant, false, a, b, {relu, passed, dy}, to_a, to_b, nullptr});
  });
}

}  // namespace cairn::cudnn::kernels
