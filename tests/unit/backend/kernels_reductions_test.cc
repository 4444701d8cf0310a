// Goal: the GPU's kernels for reductions and for lines along an axis compute what is written out again here, in every
// type, over any axes, with the same bits in any order of blocks.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "cairn/v1/tensor_layers.pb.h"
#include "tests/unit/backend/kernels_axes.h"
#include "tests/unit/backend/kernels_testing.h"

namespace cairn::cudnn::kernels {
namespace {

class ReductionsOf : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Kernels, ReductionsOf, testing::ValuesIn(kAllTypes), TypeName);

double Reduced(Reducing kind, const std::vector<double>& x) {
  double sum = 0, product = 1, squares = 0, around = 0, exponentials = 0;
  for (const double v : x) sum += v, product *= v, squares += v * v, exponentials += std::exp(v);
  const double mean = sum / static_cast<double>(x.size());
  for (const double v : x) around += (v - mean) * (v - mean) / static_cast<double>(x.size());
  switch (kind) {
    case Reducing::kMean: return mean;
    case Reducing::kSum: return sum;
    case Reducing::kMax: return *std::max_element(x.begin(), x.end());
    case Reducing::kMin: return *std::min_element(x.begin(), x.end());
    case Reducing::kVariance: return around;
    case Reducing::kStddev: return std::sqrt(around);
    case Reducing::kL2Norm: return std::sqrt(squares);
    case Reducing::kProd: return product;
    case Reducing::kLogSumExp: return std::log(exponentials);
    case Reducing::kArgMin: return static_cast<double>(std::min_element(x.begin(), x.end()) - x.begin());
    case Reducing::kL1Norm: return sum;  // all are positive
    case Reducing::kAny:
    case Reducing::kAll: return 1;
    case Reducing::kCountNonzero: return static_cast<double>(x.size());
    case Reducing::kArgMax: break;
  }
  return static_cast<double>(std::max_element(x.begin(), x.end()) - x.begin());
}

// By a difference of the numbers, which are all distinct; ARGMAX has none.
double ReducedSlope(Reducing kind, std::vector<double> x, size_t place) {
  if (kind == Reducing::kArgMax || kind == Reducing::kArgMin || kind >= Reducing::kAny) return 0;
  constexpr double kStep = 1e-6;
  x[place] += kStep;
  const double above = Reduced(kind, x);
  x[place] -= 2 * kStep;
  return (above - Reduced(kind, x)) / (2 * kStep);
}

TEST_P(ReductionsOf, Reductions) {
  struct Case {
    std::vector<int64_t> sizes;
    std::vector<int> axes;  // of the sizes
  };
  const std::vector<Case> cases = {{{3, 4, 5, 6}, {2}}, {{3, 4, 5, 6}, {1, 3}}, {{2, 40}, {1}},
                                   {{2, 9, 3}, {1, 2}}, {{1, 1100}, {1}},       {{37, 2}, {1}}};
  for (const Case& c : cases) {
    Reduction r;
    r.dims = DimsOf(c.sizes);
    const auto first = static_cast<int>(kAxesMax - c.sizes.size());
    for (const int axis : c.axes) r.reduced[first + axis] = true;
    Strides kept;
    int64_t stride = 1;
    for (int d = kAxesMax; d-- > 0;) {
      if (r.reduced[d]) continue;
      kept.of[d] = stride;
      stride *= r.dims.of[d];
    }
    const int64_t n = Count(c.sizes), outputs = stride;
    std::vector<float> numbers(n);  // distinct in every type where they meet
    for (int64_t i = 0; i < n; ++i) numbers[i] = 0.75f + static_cast<float>((i * 37) % 101) / 128.0f;
    if (n > 1000) numbers = Random(n, 5, 0.999f, 1.001f), numbers[700] = 1.5f;
    const Tensor x(numbers, type()), dy(Random(outputs, 8), type());
    std::vector<std::vector<double>> groups(outputs);
    std::vector<size_t> place(n);
    for (int64_t i = 0; i < n; ++i) {
      std::vector<double>& group = groups[PlaceAlong(r.dims, kept, i)];
      place[i] = group.size();
      group.push_back(x.exact()[i]);
    }
    for (int kind = 1; kind <= static_cast<int>(Reducing::kCountNonzero); ++kind) {
      r.kind = static_cast<Reducing>(kind);
      const std::string what = v1::Reduce::Kind_Name(static_cast<v1::Reduce::Kind>(kind));
      const bool extreme = r.kind == Reducing::kMax || r.kind == Reducing::kMin;
      if (n > 1000 && (extreme || type() != DType::kFloat32)) continue;  // equal ones
      std::vector<double> want, dx(n);
      for (const std::vector<double>& group : groups) want.push_back(Reduced(r.kind, group));
      std::vector<float> statistics(2 * outputs);
      ExpectNear(Launched(outputs, type(),
                          [&](void* y) {
                            Memory kept_for_backward(statistics.size() * sizeof(float));
                            const Error error =
                                Reduce(nullptr, r, x.data(), y, static_cast<float*>(kept_for_backward.data()), type());
                            statistics = Decoded(kept_for_backward.Get(), DType::kFloat32);
                            return error;
                          }),
                 want, 3 * precision(), what);
      for (int64_t i = 0; i < n; ++i) {
        const int64_t of = PlaceAlong(r.dims, kept, i);
        dx[i] = dy.exact()[of] * ReducedSlope(r.kind, groups[of], place[i]);
      }
      const Tensor kept_statistics(statistics);
      ExpectBoth(dx, type(), 3 * precision() + 1e-5, what + " backward", [&](void* out, bool add) {
        return ReduceBackward(nullptr, r, kept_statistics.floats(), x.data(), dy.data(), out, type(), add);
      });
    }
  }
}

// Equal numbers share the gradient; a zero among the factors gets that of the others' product.
TEST(Reductions, EqualNumbersAndZeros) {
  Reduction r;
  r.dims = DimsOf({1, 4});
  r.reduced[kAxesMax - 1] = true;
  const Tensor dy(std::vector<float>{1});
  const auto gradient = [&](Reducing kind, const std::vector<float>& numbers) {
    r.kind = kind;
    const Tensor x(numbers);
    return Launched(4, DType::kFloat32, [&](void* dx) {
      Memory y(4), statistics(8);
      auto* const kept = static_cast<float*>(statistics.data());
      EXPECT_EQ(Reduce(nullptr, r, x.data(), y.data(), kept, DType::kFloat32), 0);
      return ReduceBackward(nullptr, r, kept, x.data(), dy.data(), dx, DType::kFloat32, false);
    });
  };
  EXPECT_EQ(gradient(Reducing::kMax, {2, 1, 2, 0}), (std::vector<float>{0.5f, 0, 0.5f, 0}));
  EXPECT_EQ(gradient(Reducing::kMin, {2, 1, 2, 1}), (std::vector<float>{0, 0.5f, 0, 0.5f}));
  EXPECT_EQ(gradient(Reducing::kProd, {2, 3, 0, 5}), (std::vector<float>{0, 0, 30, 0}));
  EXPECT_EQ(gradient(Reducing::kProd, {2, 0, 0, 5}), (std::vector<float>{0, 0, 0, 0}));
  EXPECT_EQ(gradient(Reducing::kL1Norm, {2, -3, 0, 5}), (std::vector<float>{1, -1, 0, 1}));
  const auto value = [&](Reducing kind, const std::vector<float>& numbers) {
    r.kind = kind;
    const Tensor x(numbers);
    return Launched(1, DType::kFloat32, [&](void* y) {
      Memory statistics(8);
      return Reduce(nullptr, r, x.data(), y, static_cast<float*>(statistics.data()), DType::kFloat32);
    })[0];
  };
  EXPECT_EQ(value(Reducing::kAny, {0, 0, 0, 0}), 0);
  EXPECT_EQ(value(Reducing::kAny, {0, 0, -1, 0}), 1);
  EXPECT_EQ(value(Reducing::kAll, {2, 0, 1, 1}), 0);
  EXPECT_EQ(value(Reducing::kAll, {2, -1, 1, 1}), 1);
  EXPECT_EQ(value(Reducing::kCountNonzero, {2, 0, -1, 0}), 2);
  EXPECT_EQ(value(Reducing::kArgMin, {2, -1, 3, -1}), 1);
  EXPECT_EQ(value(Reducing::kArgMax, {2, -1, 3, 3}), 2);
  EXPECT_EQ(gradient(Reducing::kStddev, {2, 2, 2, 2}), (std::vector<float>{0, 0, 0, 0}));
  EXPECT_EQ(gradient(Reducing::kL2Norm, {0, 0, 0, 0}), (std::vector<float>{0, 0, 0, 0}));
}

TEST_P(ReductionsOf, Lines) {
  for (const auto& [outer, size, inner] : {std::tuple<int64_t, int64_t, int64_t>{3, 5, 4}, {7, 9, 1}, {1, 3, 40}}) {
    const int64_t n = outer * size * inner;
    const Tensor x(Random(n, 3, -2, 2), type()), dy(Random(n, 4), type());
    for (const Line kind : {Line::kSoftmax, Line::kUnit, Line::kCumulative, Line::kCumulativeProduct}) {
      const Lines lines{kind, outer, size, inner, 1e-6f};
      std::vector<double> want(n), dx(n);
      const auto place = [&, size = size, inner = inner](int64_t line, int64_t k) {
        return (line / inner * size + k) * inner + line % inner;
      };
      const auto forward = [&, size = size](int64_t line) {
        double exponentials = 0, squares = 0, sum = 0, product = 1;
        for (int64_t k = 0; k < size; ++k) {
          const double v = x.exact()[place(line, k)];
          exponentials += std::exp(v), squares += v * v;
        }
        for (int64_t k = 0; k < size; ++k) {
          const double v = x.exact()[place(line, k)];
          want[place(line, k)] = kind == Line::kSoftmax             ? std::exp(v) / exponentials
                                 : kind == Line::kUnit              ? v / std::sqrt(squares)
                                 : kind == Line::kCumulativeProduct ? product *= v
                                                                    : sum += v;
        }
        return std::sqrt(squares);
      };
      for (int64_t line = 0; line < outer * inner; ++line) {
        const double length = forward(line);
        double dot = 0, behind = 0, of_products = 0;
        for (int64_t k = 0; k < size; ++k) dot += want[place(line, k)] * dy.exact()[place(line, k)];
        for (int64_t k = size; k-- > 0;) {
          const double y = want[place(line, k)], d = dy.exact()[place(line, k)];
          behind += d;
          if (kind == Line::kCumulativeProduct) {
            const double next = k + 1 < size ? x.exact()[place(line, k + 1)] : 0;
            of_products = d + next * of_products;
            dx[place(line, k)] = (k > 0 ? want[place(line, k - 1)] : 1) * of_products;
            continue;
          }
          dx[place(line, k)] = kind == Line::kSoftmax ? y * (d - dot)
                               : kind == Line::kUnit  ? (d - y * dot) / length
                                                      : behind;
        }
      }
      const std::vector<float> y =
          Launched(n, type(), [&](void* out) { return AlongLines(nullptr, lines, x.data(), out, type()); });
      ExpectNear(y, want, 2 * precision(), "lines");
      const Tensor of_y(y, type());
      ExpectBoth(dx, type(), 4 * precision(), "lines backward", [&](void* out, bool add) {
        return AlongLinesBackward(nullptr, lines, x.data(), of_y.data(), dy.data(), out, type(), add);
      });
    }
  }
}

}  // namespace
}  // namespace cairn::cudnn::kernels
