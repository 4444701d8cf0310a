// Resizing, one axis at a time, and adaptive pooling. In the backward pass every input number visits the output numbers
// that it may contribute to.
#include <cmath>

#include "worker/backend/cudnn/kernels/places.h"

namespace cairn::cudnn::kernels {
namespace {

constexpr double kPi = 3.14159265358979323846;

CAIRN_DEVICE double RadiusOf(Interpolation kind) {
  return kind == Interpolation::kBicubic    ? 2
         : kind == Interpolation::kLanczos3 ? 3
         : kind == Interpolation::kLanczos5 ? 5
                                            : 1;
}

// sin(pi x / radius). The device's sin would keep a table of pi in local memory, for larger arguments than these.
CAIRN_DEVICE double SinOfPi(double x, double radius) {
#if defined(__CUDA_ARCH__)
  return sinpi(x / radius);
#else
  return sin(kPi * x / radius);
#endif
}

// Equal to WeightAt of common/model/resample.cc.
CAIRN_DEVICE double WeightAt(Interpolation kind, double x) {
  const double radius = RadiusOf(kind);
  if (x >= radius) return 0;
  if (kind == Interpolation::kBilinear) return 1 - x;
  if (kind == Interpolation::kBicubic)
    return x <= 1 ? ((1.5 * x - 2.5) * x) * x + 1 : ((-0.5 * x + 2.5) * x - 4) * x + 2;
  if (x < 1e-3) return 1;
  return radius * SinOfPi(x, 1) * SinOfPi(x, radius) / (kPi * kPi * x * x);
}

// The table's line for each output position: the first input position, the weights (0 outside the input), and the share
// of what is outside.
struct MakeTable {
  Resampling r;
  float* table;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    for (int64_t o = i; o < i + V; ++o) Line(o, table + o * kResampleLine);
  }
  CAIRN_DEVICE void Line(int64_t o, float* line) const {
    const double at = (static_cast<double>(o) + 0.5) * static_cast<double>(r.size) / static_cast<double>(r.out);
    int64_t first = (2 * o + 1) * r.size / (2 * r.out), count = 1;
    double sum = 1;
    const bool nearest = r.kind == Interpolation::kNearest;
    if (!nearest) {
      const double radius = RadiusOf(r.kind);
      const int64_t low = static_cast<int64_t>(ceil(at - radius - 0.5)),
                    high = static_cast<int64_t>(floor(at + radius - 0.5));
      first = low < 0 ? 0 : low;
      count = (high < r.size - 1 ? high : r.size - 1) - first + 1;
      sum = 0;
      for (int64_t k = 0; k < count; ++k) sum += WeightAt(r.kind, fabs(static_cast<double>(first + k) + 0.5 - at));
    }
    line[0] = static_cast<float>(r.begin + first);
    double outside = 0;
    for (int64_t k = 0; k < kResampleTaps; ++k) {
      const double weight = k >= count ? 0
                            : nearest  ? 1
                                       : WeightAt(r.kind, fabs(static_cast<double>(first + k) + 0.5 - at)) / sum;
      const int64_t place = r.begin + first + k;
      const bool within = place >= 0 && place < r.in;
      line[1 + k] = within ? static_cast<float>(weight) : 0.0f;
      if (!within) outside += weight;
    }
    line[1 + kResampleTaps] = static_cast<float>(outside);
  }
};

struct ResampleForward {
  Resampling r;
  Divider inner, out;
  const float* table;
  In x;
  Out y;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    int64_t rest, outer;
    const int64_t c = inner.Split(i, &rest);
    const int64_t o = out.Split(rest, &outer);
    const float* line = table + o * kResampleLine;
    const int64_t first = static_cast<int64_t>(line[0]);
    Numbers<V> sum = {};
    for (int64_t k = 0; k < kResampleTaps; ++k) {
      const float weight = line[1 + k];
      if (weight == 0) continue;
      const Numbers<V> n = Load<V>(x, (outer * r.in + first + k) * r.inner + c);
      CAIRN_UNROLL
      for (int j = 0; j < V; ++j) sum.at[j] += weight * n.at[j];
    }
    Store<V>(y, i, sum);
  }
};

struct ResampleData {
  Resampling r;
  Divider inner, in;
  double reach;  // beyond which no place of the output has a share
  const float* table;
  bool add;
  In dy;
  Out dx;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    int64_t rest, outer;
    const int64_t c = inner.Split(i, &rest);
    const int64_t place = in.Split(rest, &outer);
    const double scale = static_cast<double>(r.out) / static_cast<double>(r.size),
                 at = static_cast<double>(place - r.begin) + 0.5;
    int64_t low = static_cast<int64_t>(floor((at - reach) * scale)) - 1,
            high = static_cast<int64_t>(ceil((at + reach) * scale)) + 1;
    if (low < 0) low = 0;
    if (high >= r.out) high = r.out - 1;
    Numbers<V> sum = {};
    for (int64_t o = low; o <= high; ++o) {
      const float* line = table + o * kResampleLine;
      const int64_t k = place - static_cast<int64_t>(line[0]);
      if (k < 0 || k >= kResampleTaps || line[1 + k] == 0) continue;
      const Numbers<V> d = Load<V>(dy, (outer * r.out + o) * r.inner + c);
      CAIRN_UNROLL
      for (int j = 0; j < V; ++j) sum.at[j] += line[1 + k] * d.at[j];
    }
    StoreOrAdd<V>(dx, i, sum, add);
  }
};

// y += fill * the share outside the input.
struct FillOutside {
  Places places;
  float fill;
  const float *rows, *columns;
  Out y;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    const Place p = places.Of(i);
    const float inside = (1 - rows[(p.y + 1) * kResampleLine - 1]) * (1 - columns[(p.x + 1) * kResampleLine - 1]);
    Numbers<V> n = Load<V>(In{y.data, y.type}, i);
    CAIRN_UNROLL
    for (int j = 0; j < V; ++j) n.at[j] += fill * (1 - inside);
    Store<V>(y, i, n);
  }
};

// ---- adaptive pooling: window o covers floor(o * in / out) .. ceil((o + 1) * in / out) - 1 ----

CAIRN_DEVICE int64_t BeginOf(const Resampling& r, int64_t o) { return o * r.in / r.out; }
CAIRN_DEVICE int64_t EndOf(const Resampling& r, int64_t o) { return ((o + 1) * r.in + r.out - 1) / r.out; }

struct AdaptiveForward {
  Resampling r;
  Divider inner, out;
  bool max;
  int32_t* argmax;  // may be null
  In x;
  Out y;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    int64_t rest, outer;
    const int64_t c = inner.Split(i, &rest);
    const int64_t o = out.Split(rest, &outer), begin = BeginOf(r, o), end = EndOf(r, o);
    Numbers<V> best = Load<V>(x, (outer * r.in + begin) * r.inner + c);
    if (max && argmax != nullptr) {
      CAIRN_UNROLL
      for (int j = 0; j < V; ++j) argmax[i + j] = static_cast<int32_t>(begin);
    }
    for (int64_t place = begin + 1; place < end; ++place) {
      const Numbers<V> n = Load<V>(x, (outer * r.in + place) * r.inner + c);
      CAIRN_UNROLL
      for (int j = 0; j < V; ++j) {
        if (!max) {
          best.at[j] += n.at[j];
        } else if (n.at[j] > best.at[j]) {
          best.at[j] = n.at[j];
          if (argmax != nullptr) argmax[i + j] = static_cast<int32_t>(place);
        }
      }
    }
    if (!max) {
      CAIRN_UNROLL
      for (int j = 0; j < V; ++j) best.at[j] /= static_cast<float>(end - begin);
    }
    Store<V>(y, i, best);
  }
};

struct AdaptiveData {
  Resampling r;
  Divider inner, in;
  const int32_t* argmax;  // null: the mean
  bool add;
  In dy;
  Out dx;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    int64_t rest, outer;
    const int64_t c = inner.Split(i, &rest);
    const int64_t place = in.Split(rest, &outer);
    int64_t low = place * r.out / r.in - 1, high = (place + 1) * r.out / r.in + 1;
    if (low < 0) low = 0;
    if (high >= r.out) high = r.out - 1;
    Numbers<V> sum = {};
    for (int64_t o = low; o <= high; ++o) {
      const int64_t begin = BeginOf(r, o), end = EndOf(r, o);
      if (place < begin || place >= end) continue;
      const int64_t of = (outer * r.out + o) * r.inner + c;
      const Numbers<V> d = Load<V>(dy, of);
      CAIRN_UNROLL
      for (int j = 0; j < V; ++j) {
        if (argmax == nullptr) sum.at[j] += d.at[j] / static_cast<float>(end - begin);
        if (argmax != nullptr && argmax[of + j] == place) sum.at[j] += d.at[j];
      }
    }
    StoreOrAdd<V>(dx, i, sum, add);
  }
};

int64_t Ins(const Resampling& r) { return r.outer * r.in * r.inner; }
int64_t Outs(const Resampling& r) { return r.outer * r.out * r.inner; }

}  // namespace

Error ResampleTable(Stream stream, const Resampling& r, float* table) {
  return LaunchForEach(stream, r.out, false, MakeTable{r, table});
}

Error Resample(Stream stream, const Resampling& r, const float* table, const void* x, void* y, DType type) {
  return LaunchForEach(
      stream, Outs(r), Wide(r.inner),
      ResampleForward{r, Divider(r.inner, Outs(r)), Divider(r.out, Outs(r)), table, {x, type}, {y, type}});
}

Error ResampleBackward(Stream stream, const Resampling& r, const float* table, const void* dy, void* dx, DType type,
                       bool add) {
  return LaunchForEach(stream, Ins(r), Wide(r.inner),
                       ResampleData{r,
                                    Divider(r.inner, Ins(r)),
                                    Divider(r.in, Ins(r)),
                                    static_cast<double>(kResampleTaps) / 2 + 1,
                                    table,
                                    add,
                                    {dy, type},
                                    {dx, type}});
}

Error ResampleFill(Stream stream, int64_t examples, const int64_t shape[3], float fill, const float* rows,
                   const float* columns, void* y, DType type) {
  const int64_t n = examples * shape[0] * shape[1] * shape[2];
  return LaunchForEach(stream, n, Wide(shape[2]), FillOutside{Places(shape, n), fill, rows, columns, {y, type}});
}

Error AdaptivePooling(Stream stream, const Resampling& r, bool max, const void* x, void* y, int32_t* argmax,
                      DType type) {
  return LaunchForEach(
      stream, Outs(r), Wide(r.inner),
      AdaptiveForward{r, Divider(r.inner, Outs(r)), Divider(r.out, Outs(r)), max, argmax, {x, type}, {y, type}});
}

Error AdaptivePoolingBackward(Stream stream, const Resampling& r, const int32_t* argmax, const void* dy, void* dx,
                              DType type, bool add) {
  return LaunchForEach(
      stream, Ins(r), Wide(r.inner),
      AdaptiveData{r, Divider(r.inner, Ins(r)), Divider(r.in, Ins(r)), argmax, add, {dy, type}, {dx, type}});
}

}  // namespace cairn::cudnn::kernels
