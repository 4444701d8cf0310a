// Batch normalization (Ioffe & Szegedy 2015) over [rows, channels].
#include <cmath>

#include "worker/backend/cudnn/kernels/columns.h"

namespace cairn::cudnn::kernels {
namespace {

// Mean and variance in one pass: each thread takes its first number as an origin, so that squares stay small, and
// threads' results are joined as in Chan, Golub & LeVeque 1983. Values: count, mean, sum of squares around it.
struct Moments {
  static constexpr int kValues = 3;
  template <int V>
  struct Values {
    float at[kValues][V];
    Numbers<V> origin;
    bool any;
  };
  int64_t channels;
  In x;
  float *mean, *variance;
  template <int V>
  CAIRN_DEVICE Values<V> Begin(int64_t, int64_t) const {
    return {};
  }
  template <int V>
  CAIRN_DEVICE void Add(Values<V>& v, int64_t, int64_t row, int64_t channel) const {
    const Numbers<V> n = Load<V>(x, row * channels + channel);
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
  }
};

CAIRN_DEVICE float Factor(float variance, float epsilon) { return 1.0f / sqrtf(variance + epsilon); }

struct Normalize {
  const float *mean, *variance, *gamma, *beta;
  float epsilon;
  bool relu;
  In x, residual;
  Out y;
  template <int V>
  struct Column {
    Numbers<V> mean, factor, beta;
  };
  template <int V>
  CAIRN_DEVICE Column<V> Of(int64_t channel) const {
    Column<V> c;
    CAIRN_UNROLL
    for (int k = 0; k < V; ++k) {
      c.mean.at[k] = mean[channel + k];
      c.factor.at[k] = Factor(variance[channel + k], epsilon) * (gamma == nullptr ? 1.0f : gamma[channel + k]);
      c.beta.at[k] = beta == nullptr ? 0.0f : beta[channel + k];
    }
    return c;
  }
  template <int V>
  CAIRN_DEVICE void Do(const Column<V>& c, int64_t i) const {
    Numbers<V> n = Load<V>(x, i);
    CAIRN_UNROLL
    for (int k = 0; k < V; ++k) n.at[k] = (n.at[k] - c.mean.at[k]) * c.factor.at[k] + c.beta.at[k];
    if (residual.data != nullptr) {
      const Numbers<V> r = Load<V>(residual, i);
      CAIRN_UNROLL
      for (int k = 0; k < V; ++k) n.at[k] += r.at[k];
    }
    if (relu) {
      CAIRN_UNROLL
      for (int k = 0; k < V; ++k) n.at[k] = n.at[k] < 0 ? 0.0f : n.at[k];
    }
    Store<V>(y, i, n);
  }
};

// dy, where the relu let it through.
template <int V>
CAIRN_DEVICE Numbers<V> LoadMasked(const In& dy, const In& y, int64_t i) {
  Numbers<V> d = Load<V>(dy, i);
  if (y.data != nullptr) {
    const Numbers<V> of = Load<V>(y, i);
    CAIRN_UNROLL
    for (int k = 0; k < V; ++k) d.at[k] = of.at[k] > 0 ? d.at[k] : 0.0f;
  }
  return d;
}

// Sums of dy * normalized x, and of dy.
struct GradientSums {
  static constexpr int kValues = 2;
  template <int V>
  struct Values {
    float at[kValues][V];
    Numbers<V> mean;
  };
  int64_t channels;
  float epsilon;
  const float *mean, *variance;
  In x, y, dy;
  float *dgamma, *dbeta;
  template <int V>
  CAIRN_DEVICE Values<V> Begin(int64_t, int64_t channel) const {
    Values<V> v = {};
    CAIRN_UNROLL
    for (int k = 0; k < V; ++k) v.mean.at[k] = mean[channel + k];
    return v;
  }
  template <int V>
  CAIRN_DEVICE void Add(Values<V>& v, int64_t, int64_t row, int64_t channel) const {
    const int64_t i = row * channels + channel;
    const Numbers<V> n = Load<V>(x, i), d = LoadMasked<V>(dy, y, i);
    CAIRN_UNROLL
    for (int k = 0; k < V; ++k) {
      v.at[0][k] += d.at[k] * (n.at[k] - v.mean.at[k]);
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
    dgamma[channel] = v[0] * Factor(variance[channel], epsilon);
    dbeta[channel] = v[1];
  }
};

// Section 3 of the paper, with the chain through mean and variance gathered.
struct NormalizeBackward {
  const float *mean, *variance, *gamma, *dgamma, *dbeta;
  float epsilon, rows;
  bool constant, add, add_residual;
  In x, y, dy;
  Out dx, dresidual;
  template <int V>
  struct Column {
    Numbers<V> mean, scale, of_normalized, shift;
  };
  template <int V>
  CAIRN_DEVICE Column<V> Of(int64_t channel) const {
    Column<V> c;
    CAIRN_UNROLL
    for (int k = 0; k < V; ++k) {
      const float factor = Factor(variance[channel + k], epsilon);
      c.mean.at[k] = mean[channel + k];
      c.scale.at[k] = factor * (gamma == nullptr ? 1.0f : gamma[channel + k]);
      c.of_normalized.at[k] = constant ? 0.0f : dgamma[channel + k] / rows * factor;
      c.shift.at[k] = constant ? 0.0f : dbeta[channel + k] / rows;
    }
    return c;
  }
  template <int V>
  CAIRN_DEVICE void Do(const Column<V>& c, int64_t i) const {
    Numbers<V> d = LoadMasked<V>(dy, y, i);
    if (dresidual.data != nullptr) StoreOrAdd<V>(dresidual, i, d, add_residual);
    if (constant) {
      CAIRN_UNROLL
      for (int k = 0; k < V; ++k) d.at[k] *= c.scale.at[k];
    } else {
      const Numbers<V> n = Load<V>(x, i);
      CAIRN_UNROLL
      for (int k = 0; k < V; ++k) {
        d.at[k] = c.scale.at[k] * (d.at[k] - c.shift.at[k] - (n.at[k] - c.mean.at[k]) * c.of_normalized.at[k]);
      }
    }
    StoreOrAdd<V>(dx, i, d, add);
  }
};

ColumnShape Shape(int64_t rows, int64_t channels) { return ShapeOfColumns(1, rows, channels, Wide(channels)); }

}  // namespace

int64_t BatchStatisticsScratch(int64_t rows, int64_t channels) { return ColumnScratch<Moments>(Shape(rows, channels)); }

Error BatchStatistics(Stream stream, int64_t rows, int64_t channels, const void* x, float* mean, float* variance,
                      float* scratch, DType type) {
  return LaunchColumns(stream, Shape(rows, channels), Moments{channels, {x, type}, mean, variance}, scratch);
}

Error BatchNormalization(Stream stream, int64_t rows, int64_t channels, const void* x, const void* residual,
                         const float* mean, const float* variance, float epsilon, const float* gamma, const float* beta,
                         bool relu, void* y, DType type) {
  return LaunchForEachRow(
      stream, rows, channels,
      Normalize{mean, variance, gamma, beta, epsilon, relu, {x, type}, {residual, type}, {y, type}});
}

Error BatchNormalizationSums(Stream stream, int64_t rows, int64_t channels, const void* x, const void* y,
                             const void* dy, const float* mean, const float* variance, float epsilon, float* dgamma,
                             float* dbeta, float* scratch, DType type) {
  static_assert(GradientSums::kValues <= Moments::kValues, "one scratch for both");
  return LaunchColumns(stream, Shape(rows, channels),
                       GradientSums{channels, epsilon, mean, variance, {x, type}, {y, type}, {dy, type}, dgamma, dbeta},
                       scratch);
}

Error BatchNormalizationBackward(Stream stream, int64_t rows, int64_t channels, const void* x, const void* y,
                                 const void* dy, const float* mean, const float* variance, float epsilon,
                                 const float* gamma, const float* dgamma, const float* dbeta, bool constant, void* dx,
                                 bool add, void* dresidual, bool add_residual, DType type) {
  return LaunchForEachRow(stream, rows, channels,
                          NormalizeBackward{mean,
                                            variance,
                                            gamma,
                                            dgamma,
                                            dbeta,
                                            epsilon,
                                            static_cast<float>(rows),
                                            constant,
                                            add,
                                            add_residual,
                                            {x, type},
                                            {y, type},
                                            {dy, type},
                                            {dx, type},
                                            {dresidual, type}});
}

}  // namespace cairn::cudnn::kernels
