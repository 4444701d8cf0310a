// Numbers that depend on their place: noise, factors, penalties.
#include <cmath>

#include "worker/backend/cudnn/kernels/philox.h"
#include "worker/backend/cudnn/kernels/strides.h"

namespace cairn::cudnn::kernels {
namespace {

// The normal number k of a block, by Box and Muller, as in worker/backend/noise.cc.
CAIRN_DEVICE double Normal(const PhiloxBlock& bits, int64_t k) {
  const uint32_t of_radius = k < 2 ? bits.at[0] : bits.at[2], of_angle = k < 2 ? bits.at[1] : bits.at[3];
  const double radius = sqrt(-2 * log(1 - static_cast<double>(Uniform(of_radius))));
  const double turns = 2 * static_cast<double>(Uniform(of_angle));
#if defined(__CUDA_ARCH__)
  return radius * (k % 2 == 0 ? cospi(turns) : sinpi(turns));
#else
  constexpr double kPi = 3.14159265358979323846;
  return radius * (k % 2 == 0 ? cos(kPi * turns) : sin(kPi * turns));
#endif
}

struct Noisy {
  Noise noise;
  AxisPlaces axes;
  const StepKey* key;
  bool backward, add;
  In x;
  Out y;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    int64_t at[kAxesMax];
    axes.Split(i, at);
    const int64_t of = PlaceOf(noise.strides, at), k = of % 4;
    const PhiloxBlock bits = DrawnBits(*key, noise.draw, of / 4);
    float factor = 1, offset = 0;
    if (noise.kind == NoiseKind::kGaussian) {
      offset = backward ? 0.0f : static_cast<float>(noise.spread * Normal(bits, k));
    } else if (noise.kind == NoiseKind::kGaussianFactor) {
      factor = static_cast<float>(1 + noise.spread * Normal(bits, k));
    } else {
      const uint32_t own = k < 2 ? (k == 0 ? bits.at[0] : bits.at[1]) : (k == 2 ? bits.at[2] : bits.at[3]);
      const bool kept = Uniform(own) >= noise.draw.rate;
      factor = kept ? noise.kept : 0.0f;
      offset = kept ? noise.kept_offset : noise.dropped_offset;
    }
    const float product = At(x, i) * factor;
    SetOrAdd(y, i, backward ? product : product + offset, add);
  }
};

struct Scaled {
  AxisPlaces axes;
  AlongAxes shift, scale, offset;
  bool dense, add;
  In x;
  Out y;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    int64_t at[kAxesMax] = {};
    if (!dense) axes.Split(i, at);
    Numbers<V> n = Load<V>(x, i);
    if (shift.x.data != nullptr) {
      const Numbers<V> s = shift.Of<V>(i, at);
      CAIRN_UNROLL
      for (int k = 0; k < V; ++k) n.at[k] -= s.at[k];
    }
    const Numbers<V> f = scale.Of<V>(i, at);
    CAIRN_UNROLL
    for (int k = 0; k < V; ++k) n.at[k] *= f.at[k];
    if (offset.x.data != nullptr) {
      const Numbers<V> o = offset.Of<V>(i, at);
      CAIRN_UNROLL
      for (int k = 0; k < V; ++k) n.at[k] += o.at[k];
    }
    StoreOrAdd<V>(y, i, n, add);
  }
};

struct ScaleOfDeviation {
  const float* variance;
  float least;
  bool inverts;
  float* scale;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    const float deviation = fmaxf(sqrtf(variance[i]), least);
    scale[i] = inverts ? deviation : 1 / deviation;
  }
};

// One block an example.
struct Penalty {
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kSharedBytes = kThreads * 8;
  int64_t numbers;
  double l1, l2;
  In x;
  double* penalties;
  template <class B>
  CAIRN_DEVICE void operator()(B& block) const {
    double* values = block.template Shared<double>();
    const int64_t begin = block.index() * numbers;
    block.ForEachThread([&](int thread) {
      double absolute = 0, squares = 0;
      for (int64_t k = thread; k < numbers; k += kThreads) {
        const double v = At(x, begin + k);
        absolute += fabs(v);
        squares += v * v;
      }
      values[thread] = l1 * absolute + l2 * squares;
    });
    const double sum = block.Reduce(values, [](double a, double b) { return a + b; });
    block.ForEachThread([&](int thread) {
      if (thread == 0) penalties[block.index()] = sum;
    });
  }
};

struct DoubleTotal {
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kSharedBytes = kThreads * 8;
  int64_t n;
  const double* in;
  double* total;
  template <class B>
  CAIRN_DEVICE void operator()(B& block) const {
    double* values = block.template Shared<double>();
    block.ForEachThread([&](int thread) {
      double sum = 0;
      for (int64_t i = thread; i < n; i += kThreads) sum += in[i];
      values[thread] = sum;
    });
    const double sum = block.Reduce(values, [](double a, double b) { return a + b; });
    block.ForEachThread([&](int thread) {
      if (thread == 0) *total += sum;
    });
  }
};

struct PenaltyBackward {
  float l1, twice_l2;
  const StepKey* key;
  bool add;
  In x, dy;
  Out dx;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    const Numbers<V> v = Load<V>(x, i);
    Numbers<V> d = Load<V>(dy, i);
    const float scale = key == nullptr ? 1.0f : key->loss_scale;
    CAIRN_UNROLL
    for (int k = 0; k < V; ++k) {
      const float sign = v.at[k] > 0 ? 1.0f : (v.at[k] < 0 ? -1.0f : 0.0f);
      d.at[k] += scale * (l1 * sign + twice_l2 * v.at[k]);
    }
    StoreOrAdd<V>(dx, i, d, add);
  }
};

}  // namespace

Error AddNoise(Stream stream, const Noise& noise, const StepKey* key, const void* x, void* y, DType type) {
  return LaunchForEach(stream, noise.dims.Count(), false,
                       Noisy{noise, AxisPlaces(noise.dims), key, false, false, {x, type}, {y, type}});
}

Error AddNoiseBackward(Stream stream, const Noise& noise, const StepKey* key, const void* dy, void* dx, DType type,
                       bool add) {
  return LaunchForEach(stream, noise.dims.Count(), false,
                       Noisy{noise, AxisPlaces(noise.dims), key, true, add, {dy, type}, {dx, type}});
}

Error ScaleByPlace(Stream stream, const PlaceFactors& factors, const void* x, void* y, DType type, bool add) {
  const auto read = [&](const float* numbers) {
    return AlongAxes(factors.dims, factors.strides, numbers, DType::kFloat32);
  };
  return LaunchForEach(stream, factors.dims.Count(), Wide(factors.dims, factors.strides),
                       Scaled{AxisPlaces(factors.dims),
                              read(factors.shift),
                              read(factors.scale),
                              read(factors.offset),
                              Dense(factors.dims, factors.strides),
                              add,
                              {x, type},
                              {y, type}});
}

Error DeviationScale(Stream stream, int64_t n, const float* variance, float least, bool inverts, float* scale) {
  return LaunchForEach(stream, n, false, ScaleOfDeviation{variance, least, inverts, scale});
}

Error ActivityPenalty(Stream stream, int64_t examples, int64_t numbers, double l1, double l2, const void* x,
                      double* penalties, DType type) {
  return Launch(stream, examples, Penalty{numbers, l1, l2, {x, type}, penalties});
}

Error AddDoubles(Stream stream, int64_t n, const double* in, double* total) {
  return Launch(stream, 1, DoubleTotal{n, in, total});
}

Error ActivityBackward(Stream stream, int64_t n, float l1, float l2, const StepKey* key, const void* x, const void* dy,
                       void* dx, DType type, bool add) {
  return LaunchForEach(stream, n, true, PenaltyBackward{l1, 2 * l2, key, add, {x, type}, {dy, type}, {dx, type}});
}

}  // namespace cairn::cudnn::kernels
