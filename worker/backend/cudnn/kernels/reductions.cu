// Reductions over axes; softmax, unit length and running sums along one axis.
#include <cmath>

#include "worker/backend/cudnn/kernels/strides.h"

namespace cairn::cudnn::kernels {
namespace {

// A reduction goes through its numbers once or twice. First to their sum (kMean, kSum, kVariance, kStddev), their
// largest or smallest number, the product of those that are not 0, or how many these are; then, knowing that, to the
// sum of squares (kVariance, kStddev, of differences), of absolute numbers, of exponentials, to the count of equal
// numbers or of zeros, or to the first place of the largest or smallest.
CAIRN_DEVICE bool Least(Reducing kind) { return kind == Reducing::kMin || kind == Reducing::kArgMin; }
CAIRN_DEVICE bool Place(Reducing kind) { return kind == Reducing::kArgMax || kind == Reducing::kArgMin; }
CAIRN_DEVICE bool Counts(Reducing kind) {
  return kind == Reducing::kAny || kind == Reducing::kAll || kind == Reducing::kCountNonzero;
}
CAIRN_DEVICE bool Extreme(Reducing kind) {
  return kind == Reducing::kMax || kind == Reducing::kLogSumExp || Least(kind) || Place(kind);
}
CAIRN_DEVICE float FirstOfNone(Reducing kind) {
  return kind == Reducing::kProd ? 1.0f : (Least(kind) ? INFINITY : (Extreme(kind) ? -INFINITY : 0.0f));
}
CAIRN_DEVICE float FirstOf(Reducing kind, float x) {
  if (kind == Reducing::kL2Norm || kind == Reducing::kL1Norm) return 0.0f;
  if (Counts(kind)) return x != 0 ? 1.0f : 0.0f;
  return kind == Reducing::kProd && x == 0 ? 1.0f : x;
}
CAIRN_DEVICE float JoinFirst(Reducing kind, float a, float b) {
  if (kind == Reducing::kProd) return a * b;
  if (Least(kind)) return b < a ? b : a;
  return Extreme(kind) ? (a < b ? b : a) : a + b;
}
CAIRN_DEVICE float SecondOf(Reducing kind, float first, float x, int64_t place) {
  switch (kind) {
    case Reducing::kVariance:
    case Reducing::kStddev: return (x - first) * (x - first);
    case Reducing::kL2Norm: return x * x;
    case Reducing::kL1Norm: return fabsf(x);
    case Reducing::kLogSumExp: return expf(x - first);
    case Reducing::kProd: return x == 0 ? 1.0f : 0.0f;
    case Reducing::kArgMax:
    case Reducing::kArgMin: return x == first ? static_cast<float>(place) : INFINITY;
    default: return x == first ? 1.0f : 0.0f;
  }
}
CAIRN_DEVICE float JoinSecond(Reducing kind, float a, float b) { return Place(kind) ? (b < a ? b : a) : a + b; }
CAIRN_DEVICE float ResultOf(Reducing kind, float first, float second, float count) {
  switch (kind) {
    case Reducing::kSum: return first * count;
    case Reducing::kVariance: return second / count;
    case Reducing::kStddev: return sqrtf(second / count);
    case Reducing::kL2Norm: return sqrtf(second);
    case Reducing::kLogSumExp: return first + logf(second);
    case Reducing::kProd: return second > 0 ? 0.0f : first;
    case Reducing::kArgMax:
    case Reducing::kArgMin:
    case Reducing::kL1Norm: return second;
    case Reducing::kAny: return first > 0 ? 1.0f : 0.0f;
    case Reducing::kAll: return first == count ? 1.0f : 0.0f;
    default: return first;
  }
}

// The axes that stay, and those that go.
struct ReducedPlaces {
  Divider kept[kAxesMax], gone[kAxesMax];  // 1 where it is of the other kind
  int64_t strides[kAxesMax];
  int64_t outputs = 1, count = 1;
  explicit ReducedPlaces(const Reduction& r) {
    const int64_t n = r.dims.Count();
    int64_t stride = 1;
    for (int d = kAxesMax; d-- > 0; stride *= r.dims.of[d]) {
      strides[d] = stride;
      kept[d] = Divider(r.reduced[d] ? 1 : r.dims.of[d], n);
      gone[d] = Divider(r.reduced[d] ? r.dims.of[d] : 1, n);
      (r.reduced[d] ? count : outputs) *= r.dims.of[d];
    }
  }
  // The place of number `meeting` of those that become number `output`.
  CAIRN_DEVICE int64_t Of(int64_t output, int64_t meeting) const {
    int64_t place = 0;
    CAIRN_UNROLL
    for (int d = kAxesMax - 1; d >= 0; --d)
      place += (kept[d].Split(output, &output) + gone[d].Split(meeting, &meeting)) * strides[d];
    return place;
  }
};

// `across` results in a block, `threads / across` lanes for each.
template <int threads, int across>
struct Reducer {
  static constexpr int kThreads = threads;
  static constexpr int kAcross = across, kLanes = threads / across;
  static constexpr int kSharedBytes = threads * 4;
  Reducing kind;
  ReducedPlaces places;
  In x;
  Out y;
  float* statistics;
  template <class B>
  CAIRN_DEVICE void operator()(B& block) const {
    float* values = block.template Shared<float>();
    const int64_t first_output = block.index() * kAcross;
    const float count = static_cast<float>(places.count);
    block.ForEachThread([&](int thread) {
      const int64_t output = first_output + thread % kAcross;
      float all = FirstOfNone(kind);
      for (int64_t m = thread / kAcross; m < places.count && output < places.outputs; m += kLanes)
        all = JoinFirst(kind, all, FirstOf(kind, At(x, places.Of(output, m))));
      values[thread] = all;
    });
    Join(block, values, [&](float a, float b) { return JoinFirst(kind, a, b); });
    const bool averages = !Extreme(kind) && !Counts(kind) && kind != Reducing::kProd;
    block.ForEachThread([&](int thread) {
      const int64_t output = first_output + thread;
      if (thread < kAcross && output < places.outputs)
        statistics[2 * output] = averages ? values[thread] / count : values[thread];
    });
    block.ForEachThread([&](int thread) {
      const int64_t output = first_output + thread % kAcross;
      const bool there = output < places.outputs;
      const float first = there ? statistics[2 * output] : 0.0f;
      float all = Place(kind) ? INFINITY : 0.0f;
      const bool once = kind == Reducing::kMean || kind == Reducing::kSum || Counts(kind);
      for (int64_t m = thread / kAcross; m < places.count && there && !once; m += kLanes)
        all = JoinSecond(kind, all, SecondOf(kind, first, At(x, places.Of(output, m)), m));
      values[thread] = all;
    });
    Join(block, values, [&](float a, float b) { return JoinSecond(kind, a, b); });
    block.ForEachThread([&](int thread) {
      const int64_t output = first_output + thread;
      if (thread >= kAcross || output >= places.outputs) return;
      const float result = ResultOf(kind, statistics[2 * output], values[thread], count);
      const bool keeps_result = kind == Reducing::kStddev || kind == Reducing::kL2Norm;
      statistics[2 * output + 1] = keeps_result ? result : values[thread];
      Set(y, output, result);
    });
  }
  template <class B, class Fn>
  CAIRN_DEVICE void Join(B& block, float* values, const Fn& join) const {
    for (int half = kLanes / 2; half > 0; half /= 2) {
      block.ForEachThread([&](int thread) {
        if (thread / kAcross < half) values[thread] = join(values[thread], values[thread + half * kAcross]);
      });
    }
  }
};

struct ReducerBackward {
  Reducing kind;
  AxisPlaces axes;
  Strides kept;
  float count;
  bool add;
  const float* statistics;
  In x, dy;
  Out dx;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    int64_t at[kAxesMax];
    axes.Split(i, at);
    const int64_t of = PlaceOf(kept, at);
    const float v = At(x, i), first = statistics[2 * of], second = statistics[2 * of + 1];
    SetOrAdd(dx, i, At(dy, of) * Slope(v, first, second), add);
  }
  CAIRN_DEVICE float Slope(float v, float first, float second) const {
    switch (kind) {
      case Reducing::kMean: return 1 / count;
      case Reducing::kSum: return 1.0f;
      case Reducing::kMax:
      case Reducing::kMin: return v == first ? 1 / second : 0.0f;  // equal numbers share it
      case Reducing::kVariance: return 2 * (v - first) / count;
      case Reducing::kStddev: return second > 0 ? (v - first) / (second * count) : 0.0f;
      case Reducing::kL2Norm: return second > 0 ? v / second : 0.0f;
      case Reducing::kL1Norm: return v > 0 ? 1.0f : (v < 0 ? -1.0f : 0.0f);
      case Reducing::kLogSumExp: return expf(v - first) / second;
      case Reducing::kProd: return second == 0 ? first / v : (second == 1 && v == 0 ? first : 0.0f);
      default: return 0.0f;  // places and counts
    }
  }
};

// One thread a line.
struct LineOf {
  Lines lines;
  Divider inner;
  In x;
  Out y;
  CAIRN_DEVICE int64_t Begin(int64_t line) const {
    int64_t outer;
    const int64_t at = inner.Split(line, &outer);
    return outer * lines.size * lines.inner + at;
  }
  CAIRN_DEVICE float Length(const In& of, int64_t begin) const {
    float squares = 0;
    for (int64_t k = 0; k < lines.size; ++k) {
      const float v = At(of, begin + k * lines.inner);
      squares += v * v;
    }
    return sqrtf(squares);
  }
  template <int V>
  CAIRN_DEVICE void Do(int64_t line) const {
    const int64_t begin = Begin(line);
    float sum = 0;
    if (lines.kind == Line::kCumulative) {
      for (int64_t k = 0; k < lines.size; ++k) Set(y, begin + k * lines.inner, sum += At(x, begin + k * lines.inner));
      return;
    }
    if (lines.kind == Line::kCumulativeProduct) {
      sum = 1;
      for (int64_t k = 0; k < lines.size; ++k) Set(y, begin + k * lines.inner, sum *= At(x, begin + k * lines.inner));
      return;
    }
    if (lines.kind == Line::kUnit) {
      const float length = fmaxf(Length(x, begin), lines.shortest);
      for (int64_t k = 0; k < lines.size; ++k) Set(y, begin + k * lines.inner, At(x, begin + k * lines.inner) / length);
      return;
    }
    float max = -INFINITY;
    for (int64_t k = 0; k < lines.size; ++k) max = fmaxf(max, At(x, begin + k * lines.inner));
    for (int64_t k = 0; k < lines.size; ++k) sum += expf(At(x, begin + k * lines.inner) - max);
    for (int64_t k = 0; k < lines.size; ++k)
      Set(y, begin + k * lines.inner, expf(At(x, begin + k * lines.inner) - max) / sum);
  }
};

struct LineBackward {
  LineOf of;  // its y is read
  bool add;
  In dy;
  Out dx;
  template <int V>
  CAIRN_DEVICE void Do(int64_t line) const {
    const Lines& lines = of.lines;
    const int64_t begin = of.Begin(line);
    float sum = 0;
    if (lines.kind == Line::kCumulative) {
      for (int64_t k = lines.size; k-- > 0;)
        SetOrAdd(dx, begin + k * lines.inner, sum += At(dy, begin + k * lines.inner), add);
      return;
    }
    const In y{of.y.data, of.y.type};
    if (lines.kind == Line::kCumulativeProduct) {
      // The product of those before, times the sum over all from here on of dy times the product of those between.
      for (int64_t k = lines.size; k-- > 0;) {
        const int64_t i = begin + k * lines.inner;
        sum = At(dy, i) + (k + 1 < lines.size ? At(of.x, i + lines.inner) * sum : 0.0f);
        SetOrAdd(dx, i, (k > 0 ? At(y, i - lines.inner) : 1.0f) * sum, add);
      }
      return;
    }
    const float length = lines.kind == Line::kUnit ? of.Length(of.x, begin) : 1.0f;
    const bool constant = lines.kind == Line::kUnit && length <= lines.shortest;  // it was divided by a constant
    for (int64_t k = 0; k < lines.size && !constant; ++k)
      sum += At(y, begin + k * lines.inner) * At(dy, begin + k * lines.inner);
    const float divisor = lines.kind == Line::kUnit ? fmaxf(length, lines.shortest) : 1.0f;
    for (int64_t k = 0; k < lines.size; ++k) {
      const int64_t i = begin + k * lines.inner;
      const float v = At(y, i), d = At(dy, i);
      SetOrAdd(dx, i, lines.kind == Line::kUnit ? (d - v * sum) / divisor : v * (d - sum), add);
    }
  }
};

}  // namespace

Error Reduce(Stream stream, const Reduction& r, const void* x, void* y, float* statistics, DType type) {
  const ReducedPlaces places(r);
  int last = kAxesMax - 1;
  while (last > 0 && r.dims.of[last] == 1) --last;
  if (!r.reduced[last]) {  // results stand side by side in memory
    return Launch(stream, CeilDivide(places.outputs, 32),
                  Reducer<kBlockThreads, 32>{r.kind, places, {x, type}, {y, type}, statistics});
  }
  if (places.count <= kWarpCountMax)
    return Launch(stream, places.outputs, Reducer<32, 1>{r.kind, places, {x, type}, {y, type}, statistics});
  return Launch(stream, places.outputs, Reducer<kBlockThreads, 1>{r.kind, places, {x, type}, {y, type}, statistics});
}

Error ReduceBackward(Stream stream, const Reduction& r, const float* statistics, const void* x, const void* dy,
                     void* dx, DType type, bool add) {
  Strides kept;
  int64_t stride = 1, count = 1;
  for (int d = kAxesMax; d-- > 0;) {
    kept.of[d] = r.reduced[d] ? 0 : stride;
    (r.reduced[d] ? count : stride) *= r.dims.of[d];
  }
  return LaunchForEach(stream, r.dims.Count(), false,
                       ReducerBackward{r.kind,
                                       AxisPlaces(r.dims),
                                       kept,
                                       static_cast<float>(count),
                                       add,
                                       statistics,
                                       {x, type},
                                       {dy, type},
                                       {dx, type}});
}

Error AlongLines(Stream stream, const Lines& lines, const void* x, void* y, DType type) {
  const int64_t n = lines.outer * lines.inner;
  return LaunchForEach(stream, n, false, LineOf{lines, Divider(lines.inner, n), {x, type}, {y, type}});
}

Error AlongLinesBackward(Stream stream, const Lines& lines, const void* x, const void* y, const void* dy, void* dx,
                         DType type, bool add) {
  const int64_t n = lines.outer * lines.inner;
  return LaunchForEach(
      stream, n, false,
      LineBackward{
          {lines, Divider(lines.inner, n), {x, type}, {const_cast<void*>(y), type}}, add, {dy, type}, {dx, type}});
}

}  // namespace cairn::cudnn::kernels
