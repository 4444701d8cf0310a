// Activations of rows besides softmax: sparsemax and gated linear units.
#include <cmath>

#include "worker/backend/cudnn/kernels/activation.h"
#include "worker/backend/cudnn/kernels/numbers.h"

namespace cairn::cudnn::kernels {
namespace {

// One block a row. The threshold by Michelot (1986): that of all numbers, then of those above it, until none falls out.
template <int threads>
struct SparsemaxRow {
  static constexpr int kThreads = threads;
  static constexpr int kSharedBytes = threads * 8;
  int64_t columns;
  In x;
  Out y;
  template <class B>
  CAIRN_DEVICE void operator()(B& block) const {
    double* values = block.template Shared<double>();
    const int64_t begin = block.index() * columns;
    const auto add = [](double a, double b) { return a + b; };
    double threshold = -INFINITY, counted = static_cast<double>(columns) + 1;
    while (true) {
      block.ForEachThread([&](int thread) {
        double sum = 0;
        for (int64_t c = thread; c < columns; c += kThreads) {
          const float number = At(x, begin + c);
          if (number > threshold) sum += number;
        }
        values[thread] = sum;
      });
      const double sum = block.Reduce(values, add);
      block.ForEachThread([&](int thread) {
        double count = 0;
        for (int64_t c = thread; c < columns; c += kThreads) count += At(x, begin + c) > threshold ? 1 : 0;
        values[thread] = count;
      });
      const double count = block.Reduce(values, add);
      if (count == 0 || count >= counted) break;  // each round but the last has fewer of them
      counted = count;
      threshold = (sum - 1) / count;
    }
    block.ForEachThread([&](int thread) {
      for (int64_t c = thread; c < columns; c += kThreads) {
        const double above = At(x, begin + c) - threshold;
        Set(y, begin + c, above < 0 ? 0.0f : static_cast<float>(above));  // a NaN stays one
      }
    });
  }
};

template <int threads>
struct SparsemaxRowBackward {
  static constexpr int kThreads = threads;
  static constexpr int kSharedBytes = threads * 8;
  int64_t columns;
  bool add;
  In y, dy;
  Out dx;
  template <class B>
  CAIRN_DEVICE void operator()(B& block) const {
    double* values = block.template Shared<double>();
    const int64_t begin = block.index() * columns;
    const auto join = [](double a, double b) { return a + b; };
    block.ForEachThread([&](int thread) {
      double sum = 0;
      for (int64_t c = thread; c < columns; c += kThreads) {
        if (At(y, begin + c) > 0) sum += At(dy, begin + c);
      }
      values[thread] = sum;
    });
    const double sum = block.Reduce(values, join);
    block.ForEachThread([&](int thread) {
      double count = 0;
      for (int64_t c = thread; c < columns; c += kThreads) count += At(y, begin + c) > 0 ? 1 : 0;
      values[thread] = count;
    });
    const double count = block.Reduce(values, join), mean = count > 0 ? sum / count : 0;
    block.ForEachThread([&](int thread) {
      for (int64_t c = thread; c < columns; c += kThreads) {
        const bool kept = At(y, begin + c) > 0;
        SetOrAdd(dx, begin + c, kept ? static_cast<float>(At(dy, begin + c) - mean) : 0.0f, add);
      }
    });
  }
};

struct Gating {
  Divider half;
  In x;
  Out y;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    int64_t row;
    const int64_t column = half.Split(i, &row), a = 2 * row * half.divisor() + column;
    Set(y, i, At(x, a) * Sigmoid(At(x, a + half.divisor())));
  }
};

struct GatingBackward {
  Divider half;
  bool add;
  In x, dy;
  Out dx;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    int64_t row;
    const int64_t column = half.Split(i, &row), a = 2 * row * half.divisor() + column, b = a + half.divisor();
    const float gate = Sigmoid(At(x, b)), d = At(dy, i), number = At(x, a);
    SetOrAdd(dx, a, d * gate, add);
    SetOrAdd(dx, b, d * number * gate * (1 - gate), add);
  }
};

}  // namespace

Error Sparsemax(Stream stream, int64_t rows, int64_t columns, const void* x, void* y, DType type) {
  if (columns <= kWarpColumnsMax) return Launch(stream, rows, SparsemaxRow<32>{columns, {x, type}, {y, type}});
  return Launch(stream, rows, SparsemaxRow<kBlockThreads>{columns, {x, type}, {y, type}});
}
Error SparsemaxBackward(Stream stream, int64_t rows, int64_t columns, const void* y, const void* dy, void* dx,
                        DType type, bool add) {
  if (columns <= kWarpColumnsMax)
    return Launch(stream, rows, SparsemaxRowBackward<32>{columns, add, {y, type}, {dy, type}, {dx, type}});
  return Launch(stream, rows, SparsemaxRowBackward<kBlockThreads>{columns, add, {y, type}, {dy, type}, {dx, type}});
}

Error GatedRows(Stream stream, int64_t rows, int64_t half, const void* x, void* y, DType type) {
  return LaunchForEach(stream, rows * half, false, Gating{Divider(half, rows * half), {x, type}, {y, type}});
}
Error GatedRowsBackward(Stream stream, int64_t rows, int64_t half, const void* x, const void* dy, void* dx, DType type,
                        bool add) {
  return LaunchForEach(stream, rows * half, false,
                       GatingBackward{Divider(half, rows * half), add, {x, type}, {dy, type}, {dx, type}});
}

}  // namespace cairn::cudnn::kernels
