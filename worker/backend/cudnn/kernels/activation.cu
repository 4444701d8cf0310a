// Activations of numbers, softmax of rows.
#include "worker/backend/cudnn/kernels/activation.h"
#include "worker/backend/cudnn/kernels/places.h"

namespace cairn::cudnn::kernels {
namespace {

// The function is a constant of each kernel.
template <Act kF>
struct BiasActivate {
  float alpha;
  Divider columns;
  const float* bias;
  In x;
  Out y;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    Numbers<V> n = Load<V>(x, i);
    if (bias != nullptr) {
      int64_t row;
      const Numbers<V> b = Load<V>({bias, DType::kFloat32}, columns.Split(i, &row));
      CAIRN_UNROLL
      for (int k = 0; k < V; ++k) n.at[k] += b.at[k];
    }
    CAIRN_UNROLL
    for (int k = 0; k < V; ++k) n.at[k] = Activate(kF, alpha, n.at[k]);
    Store<V>(y, i, n);
  }
};

template <Act kF>
struct ActivateBackward {
  float alpha;
  bool add;
  In v, dy;  // v: what tells the derivative
  Out dx;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    Numbers<V> d = Load<V>(dy, i);
    if constexpr (kF != Act::kLinear) {
      const Numbers<V> of = Load<V>(v, i);
      // The largest result as it was stored: one that was rounded down must not look as if it were below the limit.
      const bool rounded = kF == Act::kRelu6 && v.type != DType::kFloat32;
      const float limit = rounded ? FromBits(ToBits(alpha, v.type), v.type) : alpha;
      CAIRN_UNROLL
      for (int k = 0; k < V; ++k) d.at[k] *= Derivative(kF, limit, of.at[k]);
    }
    StoreOrAdd<V>(dx, i, d, add);
  }
};

// The function as a constant: Kernel<f>.
template <template <Act> class Kernel, class... Arguments>
Error LaunchOf(Act f, Stream stream, int64_t n, bool wide, const Arguments&... arguments) {
  switch (f) {
#define CAIRN_LAUNCH(name) \
  case Act::name: return LaunchForEach(stream, n, wide, Kernel<Act::name>{arguments...});
    CAIRN_LAUNCH(kRelu)
    CAIRN_LAUNCH(kLeakyRelu)
    CAIRN_LAUNCH(kSigmoid)
    CAIRN_LAUNCH(kTanh)
    CAIRN_LAUNCH(kElu)
    CAIRN_LAUNCH(kGelu)
    CAIRN_LAUNCH(kGeluTanh)
    CAIRN_LAUNCH(kSilu)
    CAIRN_LAUNCH(kSoftplus)
    CAIRN_LAUNCH(kRelu6)
    CAIRN_LAUNCH(kSelu)
    CAIRN_LAUNCH(kHardSigmoid)
    CAIRN_LAUNCH(kHardSilu)
    CAIRN_LAUNCH(kExponential)
    CAIRN_LAUNCH(kSoftsign)
    CAIRN_LAUNCH(kMish)
    CAIRN_LAUNCH(kLogSigmoid)
    CAIRN_LAUNCH(kCelu)
    CAIRN_LAUNCH(kHardTanh)
    CAIRN_LAUNCH(kTanhShrink)
    CAIRN_LAUNCH(kSoftShrink)
    CAIRN_LAUNCH(kHardShrink)
    CAIRN_LAUNCH(kThreshold)
    CAIRN_LAUNCH(kSquareplus)
    CAIRN_LAUNCH(kSparsePlus)
    CAIRN_LAUNCH(kSparseSigmoid)
    CAIRN_LAUNCH(kHardSigmoidKeras2)
#undef CAIRN_LAUNCH
    case Act::kLinear: break;
  }
  return LaunchForEach(stream, n, wide, Kernel<Act::kLinear>{arguments...});
}

// One block a row. kLog: the logarithm.
template <int threads, bool kLog>
struct SoftmaxRow {
  static constexpr int kThreads = threads;
  static constexpr int kSharedBytes = threads * 4;
  int64_t columns;
  int64_t queries;  // 0: every column is seen
  In x;
  Out y;
  template <class B>
  CAIRN_DEVICE void operator()(B& block) const {
    float* values = block.template Shared<float>();
    const int64_t begin = block.index() * columns;
    const int64_t causal = queries > 0 ? block.index() % queries + 1 : columns;
    const int64_t seen = causal < columns ? causal : columns;
    block.ForEachThread([&](int thread) {
      float max = -INFINITY;
      for (int64_t c = thread; c < seen; c += kThreads) max = fmaxf(max, At(x, begin + c));
      values[thread] = max;
    });
    const float max = block.Reduce(values, [](float a, float b) { return fmaxf(a, b); });
    block.ForEachThread([&](int thread) {
      float sum = 0;
      for (int64_t c = thread; c < seen; c += kThreads) sum += expf(At(x, begin + c) - max);
      values[thread] = sum;
    });
    const float sum = block.Reduce(values, [](float a, float b) { return a + b; });
    block.ForEachThread([&](int thread) {
      const float shift = kLog ? max + logf(sum) : max;
      for (int64_t c = thread; c < columns; c += kThreads) {
        const float above = c < seen ? At(x, begin + c) - shift : 0.0f;
        Set(y, begin + c, kLog ? above : (c < seen ? expf(above) / sum : 0.0f));
      }
    });
  }
};

// The sum of a * b over a row, by all threads of its block.
template <int kThreads, class B>
CAIRN_DEVICE float RowDot(B& block, int64_t begin, int64_t columns, const In& a, const In& b) {
  float* values = block.template Shared<float>();
  block.ForEachThread([&](int thread) {
    float sum = 0;
    for (int64_t c = thread; c < columns; c += kThreads) sum += At(a, begin + c) * At(b, begin + c);
    values[thread] = sum;
  });
  return block.Reduce(values, [](float x, float y) { return x + y; });
}

template <int threads>
struct SoftmaxRowBackward {
  static constexpr int kThreads = threads;
  static constexpr int kSharedBytes = threads * 4;
  int64_t columns;
  bool add;
  In y, dy;
  Out dx;
  template <class B>
  CAIRN_DEVICE void operator()(B& block) const {
    const int64_t begin = block.index() * columns;
    const float dot = RowDot<kThreads>(block, begin, columns, y, dy);
    block.ForEachThread([&](int thread) {
      for (int64_t c = thread; c < columns; c += kThreads) {
        const int64_t i = begin + c;
        SetOrAdd(dx, i, At(y, i) * (At(dy, i) - dot), add);
      }
    });
  }
};

template <int threads>
struct LogSoftmaxRowBackward {
  static constexpr int kThreads = threads;
  static constexpr int kSharedBytes = threads * 4;
  int64_t columns;
  bool add;
  In y, dy;
  Out dx;
  template <class B>
  CAIRN_DEVICE void operator()(B& block) const {
    float* values = block.template Shared<float>();
    const int64_t begin = block.index() * columns;
    block.ForEachThread([&](int thread) {
      float sum = 0;
      for (int64_t c = thread; c < columns; c += kThreads) sum += At(dy, begin + c);
      values[thread] = sum;
    });
    const float sum = block.Reduce(values, [](float a, float b) { return a + b; });
    block.ForEachThread([&](int thread) {
      for (int64_t c = thread; c < columns; c += kThreads) {
        const int64_t i = begin + c;
        SetOrAdd(dx, i, At(dy, i) - expf(At(y, i)) * sum, add);
      }
    });
  }
};

template <int threads>
struct UnitRow {
  static constexpr int kThreads = threads;
  static constexpr int kSharedBytes = threads * 4;
  int64_t columns;
  float shortest;
  In x;
  Out y;
  float* lengths;
  template <class B>
  CAIRN_DEVICE void operator()(B& block) const {
    const int64_t begin = block.index() * columns;
    const float squares = RowDot<kThreads>(block, begin, columns, x, x);
    const float length = fmaxf(sqrtf(squares), shortest);
    block.ForEachThread([&](int thread) {
      if (thread == 0) lengths[block.index()] = length;
      for (int64_t c = thread; c < columns; c += kThreads) Set(y, begin + c, At(x, begin + c) / length);
    });
  }
};

template <int threads>
struct UnitRowBackward {
  static constexpr int kThreads = threads;
  static constexpr int kSharedBytes = threads * 4;
  int64_t columns;
  float shortest;
  bool add;
  In y, dy;
  Out dx;
  const float* lengths;
  template <class B>
  CAIRN_DEVICE void operator()(B& block) const {
    const int64_t begin = block.index() * columns;
    const float dot = RowDot<kThreads>(block, begin, columns, y, dy);
    const float length = lengths[block.index()], along = length > shortest ? dot : 0.0f;
    block.ForEachThread([&](int thread) {
      for (int64_t c = thread; c < columns; c += kThreads) {
        const int64_t i = begin + c;
        SetOrAdd(dx, i, (At(dy, i) - At(y, i) * along) / length, add);
      }
    });
  }
};

}  // namespace

Error BiasActivation(Stream stream, Act f, float alpha, int64_t rows, int64_t columns, const void* x, const float* bias,
                     void* y, DType type) {
  const int64_t n = rows * columns;
  return LaunchOf<BiasActivate>(f, stream, n, bias == nullptr || Wide(columns), alpha, Divider(columns, n), bias,
                                In{x, type}, Out{y, type});
}

Error ActivationBackward(Stream stream, Act f, float alpha, int64_t n, const void* x, const void* y, const void* dy,
                         void* dx, DType type, bool add) {
  return LaunchOf<ActivateBackward>(f, stream, n, true, alpha, add, In{TellsDerivative(f) ? y : x, type}, In{dy, type},
                                    Out{dx, type});
}

Error Softmax(Stream stream, int64_t rows, int64_t columns, int64_t causal_queries, const void* x, void* y,
              DType type) {
  if (columns <= kWarpColumnsMax)
    return Launch(stream, rows, SoftmaxRow<32, false>{columns, causal_queries, {x, type}, {y, type}});
  return Launch(stream, rows, SoftmaxRow<kBlockThreads, false>{columns, causal_queries, {x, type}, {y, type}});
}

Error SoftmaxBackward(Stream stream, int64_t rows, int64_t columns, const void* y, const void* dy, void* dx, DType type,
                      bool add) {
  if (columns <= kWarpColumnsMax)
    return Launch(stream, rows, SoftmaxRowBackward<32>{columns, add, {y, type}, {dy, type}, {dx, type}});
  return Launch(stream, rows, SoftmaxRowBackward<kBlockThreads>{columns, add, {y, type}, {dy, type}, {dx, type}});
}

Error LogSoftmax(Stream stream, int64_t rows, int64_t columns, const void* x, void* y, DType type) {
  if (columns <= kWarpColumnsMax) return Launch(stream, rows, SoftmaxRow<32, true>{columns, 0, {x, type}, {y, type}});
  return Launch(stream, rows, SoftmaxRow<kBlockThreads, true>{columns, 0, {x, type}, {y, type}});
}

Error LogSoftmaxBackward(Stream stream, int64_t rows, int64_t columns, const void* y, const void* dy, void* dx,
                         DType type, bool add) {
  if (columns <= kWarpColumnsMax)
    return Launch(stream, rows, LogSoftmaxRowBackward<32>{columns, add, {y, type}, {dy, type}, {dx, type}});
  return Launch(stream, rows, LogSoftmaxRowBackward<kBlockThreads>{columns, add, {y, type}, {dy, type}, {dx, type}});
}

Error UnitRows(Stream stream, int64_t rows, int64_t columns, float shortest, const void* x, void* y, float* lengths,
               DType type) {
  if (columns <= kWarpColumnsMax)
    return Launch(stream, rows, UnitRow<32>{columns, shortest, {x, type}, {y, type}, lengths});
  return Launch(stream, rows, UnitRow<kBlockThreads>{columns, shortest, {x, type}, {y, type}, lengths});
}

Error UnitRowsBackward(Stream stream, int64_t rows, int64_t columns, float shortest, const void* y,
                       const float* lengths, const void* dy, void* dx, DType type, bool add) {
  if (columns <= kWarpColumnsMax)
    return Launch(stream, rows,
                  UnitRowBackward<32>{columns, shortest, add, {y, type}, {dy, type}, {dx, type}, lengths});
  return Launch(stream, rows,
                UnitRowBackward<kBlockThreads>{columns, shortest, add, {y, type}, {dy, type}, {dx, type}, lengths});
}

}  // namespace cairn::cudnn::kernels
