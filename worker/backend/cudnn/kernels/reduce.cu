// Sums over rows.
#include "worker/backend/cudnn/kernels/columns.h"

namespace cairn::cudnn::kernels {
namespace {

struct PlainSums {
  static constexpr int kValues = 1;
  template <int V>
  struct Values {
    float at[kValues][V];
  };
  int64_t columns;
  In x;
  float* sums;
  template <int V>
  CAIRN_DEVICE Values<V> Begin(int64_t, int64_t) const {
    return {};
  }
  template <int V>
  CAIRN_DEVICE void Add(Values<V>& v, int64_t, int64_t row, int64_t column) const {
    const Numbers<V> n = Load<V>(x, row * columns + column);
    CAIRN_UNROLL
    for (int k = 0; k < V; ++k) v.at[0][k] += n.at[k];
  }
  template <int V>
  CAIRN_DEVICE void End(Values<V>&) const {}
  CAIRN_DEVICE static void Join(float* a, const float* b) { a[0] += b[0]; }
  CAIRN_DEVICE void Finish(int64_t, int64_t column, const float* v) const { sums[column] = v[0]; }
};

// One block a column.
struct DoubleSum {
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kSharedBytes = kThreads * 8;
  int64_t rows, columns;
  const double* in;
  double* out;
  template <class B>
  CAIRN_DEVICE void operator()(B& block) const {
    double* values = block.template Shared<double>();
    block.ForEachThread([&](int thread) {
      double sum = 0;
      for (int64_t row = thread; row < rows; row += kThreads) sum += in[row * columns + block.index()];
      values[thread] = sum;
    });
    const double sum = block.Reduce(values, [](double a, double b) { return a + b; });
    block.ForEachThread([&](int thread) {
      if (thread == 0) out[block.index()] = sum;
    });
  }
};

struct FiniteCheck {
  In x;
  int32_t* bad;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    const Numbers<V> n = Load<V>(x, i);
    CAIRN_UNROLL
    for (int k = 0; k < V; ++k) {
      if ((BitsOf(n.at[k]) & 0x7f800000) == 0x7f800000) *bad = 1;  // whoever writes it writes the same
    }
  }
};

}  // namespace

int64_t ColumnSumsScratch(int64_t rows, int64_t columns) {
  return ColumnScratch<PlainSums>(ShapeOfColumns(1, rows, columns, Wide(columns)));
}

Error ColumnSums(Stream stream, int64_t rows, int64_t columns, const void* x, float* sums, float* scratch, DType type) {
  return LaunchColumns(stream, ShapeOfColumns(1, rows, columns, Wide(columns)), PlainSums{columns, {x, type}, sums},
                       scratch);
}

Error SumDoubles(Stream stream, int64_t rows, int64_t columns, const double* in, double* out) {
  return Launch(stream, columns, DoubleSum{rows, columns, in, out});
}

Error MarkNonFinite(Stream stream, int64_t n, const void* x, DType type, int32_t* bad) {
  return LaunchForEach(stream, n, true, FiniteCheck{{x, type}, bad});
}

}  // namespace cairn::cudnn::kernels
