// Goal: the GPU's kernels for operations on tensors and for attention's scores compute what the formulas of the CPU's
// own code say, in every type, wide and odd shapes, repeated or not, with the same bits in any order of blocks.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "tests/unit/backend/kernels_axes.h"
#include "tests/unit/backend/kernels_testing.h"
#include "worker/backend/tensor_functors.h"

namespace cairn::cudnn::kernels {
namespace {

class Tensors : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Kernels, Tensors, testing::ValuesIn(kAllTypes), TypeName);

// ---- operations ----

struct Formula {
  std::function<double(double, double, double)> value;
  std::function<double(double, double, double)> slope[kOperandsMax];
};

// Those that tensor_functors.h need not have. False: it is another one.
bool SetFurther(v1::Operation::Kind kind, Formula* f) {
  using O = v1::Operation;
  using Function = double (*)(double);
  const std::map<O::Kind, std::pair<Function, Function>> unary = {
      {O::LOG2, {[](double a) { return std::log2(a); }, [](double a) { return 1 / (a * std::log(2.0)); }}},
      {O::LOG10, {[](double a) { return std::log10(a); }, [](double a) { return 1 / (a * std::log(10.0)); }}},
      {O::TAN, {[](double a) { return std::tan(a); }, [](double a) { return 1 / (std::cos(a) * std::cos(a)); }}},
      {O::ARCSIN, {[](double a) { return std::asin(a); }, [](double a) { return 1 / std::sqrt(1 - a * a); }}},
      {O::ARCCOS, {[](double a) { return std::acos(a); }, [](double a) { return -1 / std::sqrt(1 - a * a); }}},
      {O::ARCTAN, {[](double a) { return std::atan(a); }, [](double a) { return 1 / (1 + a * a); }}},
      {O::SINH, {[](double a) { return std::sinh(a); }, [](double a) { return std::cosh(a); }}},
      {O::COSH, {[](double a) { return std::cosh(a); }, [](double a) { return std::sinh(a); }}},
      {O::ARCSINH, {[](double a) { return std::asinh(a); }, [](double a) { return 1 / std::sqrt(a * a + 1); }}},
      {O::ARCCOSH, {[](double a) { return std::acosh(a); }, [](double a) { return 1 / std::sqrt(a * a - 1); }}},
      {O::ARCTANH, {[](double a) { return std::atanh(a); }, [](double a) { return 1 / (1 - a * a); }}},
      {O::ERF, {[](double a) { return std::erf(a); }, [](double a) { return std::exp(-a * a) * 2 / std::sqrt(M_PI); }}},
      {O::CEIL, {[](double a) { return std::ceil(a); }, [](double) { return 0.0; }}},
      {O::TRUNC, {[](double a) { return std::trunc(a); }, [](double) { return 0.0; }}},
      {O::LOGICAL_NOT, {[](double a) { return a == 0 ? 1.0 : 0.0; }, [](double) { return 0.0; }}},
      {O::IS_NAN, {[](double a) { return std::isnan(a) ? 1.0 : 0.0; }, [](double) { return 0.0; }}},
      {O::IS_INF, {[](double a) { return std::isinf(a) ? 1.0 : 0.0; }, [](double) { return 0.0; }}},
      {O::NAN_TO_NUM,
       {[](double a) { return std::isnan(a)      ? 0.75
                              : std::isfinite(a) ? a
                              : a > 0            ? 0.5
                                                 : -0.25; },
        [](double a) { return std::isfinite(a) ? 1.0 : 0.0; }}},
      {O::IS_FINITE, {[](double a) { return std::isfinite(a) ? 1.0 : 0.0; }, [](double) { return 0.0; }}},
  };
  if (const auto found = unary.find(kind); found != unary.end()) {
    const auto [value, slope] = found->second;
    f->value = [value = value](double a, double, double) { return value(a); };
    f->slope[0] = [slope = slope](double a, double, double) { return slope(a); };
    return true;
  }
  const auto set = [&](auto value, auto first, auto second) {
    f->value = [=](double a, double b, double) { return value(a, b); };
    f->slope[0] = [=](double a, double b, double) { return first(a, b); };
    f->slope[1] = [=](double a, double b, double) { return second(a, b); };
    return true;
  };
  const auto flat = [](double, double) { return 0.0; };
  switch (kind) {
    case O::FLOOR_DIVIDE: return set([](double a, double b) { return std::floor(a / b); }, flat, flat);
    case O::MOD:
      return set([](double a, double b) { return a - b * std::floor(a / b); }, [](double, double) { return 1.0; },
                 [](double a, double b) { return -std::floor(a / b); });
    case O::ARCTAN2:
      return set([](double a, double b) { return std::atan2(a, b); },
                 [](double a, double b) { return b / (a * a + b * b); },
                 [](double a, double b) { return -a / (a * a + b * b); });
    case O::SQUARED_DIFFERENCE:
      return set([](double a, double b) { return (a - b) * (a - b); }, [](double a, double b) { return 2 * (a - b); },
                 [](double a, double b) { return 2 * (b - a); });
    case O::LOGICAL_AND: return set([](double a, double b) { return a != 0 && b != 0 ? 1.0 : 0.0; }, flat, flat);
    case O::LOGICAL_OR: return set([](double a, double b) { return a != 0 || b != 0 ? 1.0 : 0.0; }, flat, flat);
    case O::LOGICAL_XOR: return set([](double a, double b) { return (a != 0) != (b != 0) ? 1.0 : 0.0; }, flat, flat);
    case O::FULL_LIKE: return set([](double, double b) { return b; }, flat, flat);
    default: return false;
  }
}

Formula FormulaOf(v1::Operation::Kind kind) {
  Formula f;
  if (SetFurther(kind, &f)) return f;
  if (kind == v1::Operation::WHERE) {
    f.value = [](double a, double b, double c) { return a != 0 ? b : c; };
    f.slope[0] = [](double, double, double) { return 0.0; };
    f.slope[1] = [](double a, double, double) { return a != 0 ? 1.0 : 0.0; };
    f.slope[2] = [](double a, double, double) { return a != 0 ? 0.0 : 1.0; };
  } else if (kind <= v1::Operation::MINIMUM || (kind >= v1::Operation::EQUAL && kind <= v1::Operation::LESS_EQUAL)) {
    WithBinary<double>(kind, [&](auto value, auto first, auto second) {
      f.value = [=](double a, double b, double) { return value(a, b); };
      f.slope[0] = [=](double a, double b, double) { return first(a, b, value(a, b)); };
      f.slope[1] = [=](double a, double b, double) { return second(a, b, value(a, b)); };
    });
  } else {
    WithUnary<double>(kind, {.low = -0.25, .high = 0.5}, [&](auto value, auto slope) {
      f.value = [=](double a, double, double) { return value(a); };
      f.slope[0] = [=](double a, double, double) { return slope(a, value(a)); };
    });
  }
  return f;
}

std::vector<v1::Operation::Kind> Kinds() {
  std::vector<v1::Operation::Kind> kinds;
  for (int kind = v1::Operation::ADD; kind <= v1::Operation::FULL_LIKE; ++kind) {
    const bool by_axis =
        (kind >= v1::Operation::SOFTMAX && kind <= v1::Operation::CUMSUM) || kind == v1::Operation::CUMPROD;
    if (v1::Operation::Kind_IsValid(kind) && kind != v1::Operation::MATMUL && !by_axis)
      kinds.push_back(static_cast<v1::Operation::Kind>(kind));
  }
  return kinds;
}

TEST_P(Tensors, Operations) {
  using Sizes = std::vector<int64_t>;
  const std::vector<std::vector<Sizes>> cases = {{{3, 5, 8}, {3, 5, 8}, {3, 5, 8}},
                                                 {{7, 11}, {7, 1}, {11}},
                                                 {{2, 3, 2, 3, 8}, {2, 1, 2, 1, 8}, {1}},
                                                 {{4, 1, 16}, {4, 6, 1}, {16}},
                                                 {{2, 3, 4, 5}, {5}, {2, 3, 4, 5}}};
  for (const v1::Operation::Kind kind : Kinds()) {
    const Formula f = FormulaOf(kind);
    const int count = f.slope[2] ? 3 : f.slope[1] ? 2 : 1;
    for (const std::vector<Sizes>& sizes : cases) {
      Operation o;
      o.op = static_cast<Op>(kind);
      o.low = -0.25f, o.high = 0.5f, o.nan = 0.75f;
      o.count = count;
      std::vector<std::unique_ptr<Tensor>> x;
      Sizes output(kAxesMax, 1);
      for (int k = 0; k < count; ++k) {
        for (size_t i = 0; i < sizes[k].size(); ++i) {
          int64_t& size = output[kAxesMax - sizes[k].size() + i];
          size = std::max(size, sizes[k][i]);
        }
      }
      o.dims = DimsOf(output);
      const int64_t n = Count(output);
      for (int k = 0; k < count; ++k) {
        // Away from the steps of functions, and where all of them have values.
        std::vector<float> numbers = Random(Count(sizes[k]), 7 + k, 0.3f, 1.7f);
        if (kind == v1::Operation::ABSOLUTE || kind == v1::Operation::SIN || kind == v1::Operation::CLIP) {
          for (size_t i = 0; i < numbers.size(); i += 2) numbers[i] = -numbers[i];
        }
        if (kind == v1::Operation::ARCCOSH) numbers = Random(Count(sizes[k]), 7, 1.3f, 2.7f);
        if (kind >= v1::Operation::ARCSIN && kind <= v1::Operation::ARCCOS)
          numbers = Random(Count(sizes[k]), 7, -0.7f, 0.7f);
        if (kind == v1::Operation::ARCTANH) numbers = Random(Count(sizes[k]), 7, -0.7f, 0.7f);
        if (kind == v1::Operation::TAN) numbers = Random(Count(sizes[k]), 7, -1, 1);
        if (kind >= v1::Operation::LOGICAL_NOT) numbers = Coarse(Count(sizes[k]), 7 + k);
        if (kind == v1::Operation::NAN_TO_NUM) {
          const float kinds[] = {std::nanf(""), 1.5f, -INFINITY, INFINITY, -2.0f};
          for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = kinds[i % 5];
        }
        if (kind == v1::Operation::MOD || kind == v1::Operation::FLOOR_DIVIDE) {  // quotients between whole numbers
          for (float& v : numbers) v = k == 0 ? (v < 1 ? 0.625f : -1.625f) : (v < 1 ? 0.5f : 1.0f);
        }
        if (kind >= v1::Operation::EQUAL && kind <= v1::Operation::LESS_EQUAL && k == 1)
          numbers = Random(Count(sizes[k]), 7, 0.3f, 1.7f);
        if (kind == v1::Operation::WHERE && k == 0) numbers = Coarse(Count(sizes[k]), 3);
        x.push_back(std::make_unique<Tensor>(numbers, type()));
        o.of[k] = {x[k]->data(), type(), Along(o.dims, sizes[k])};
      }
      const auto at = [&](int k, int64_t i) {
        return k < count ? x[k]->exact()[PlaceAlong(o.dims, o.of[k].strides, i)] : 0.0;
      };
      const std::string what = v1::Operation::Kind_Name(kind);
      std::vector<double> want(n);
      for (int64_t i = 0; i < n; ++i) want[i] = f.value(at(0, i), at(1, i), at(2, i));
      ExpectNear(Launched(n, type(), [&](void* y) { return Operate(nullptr, o, y, type()); }), want, precision(), what);
      const Tensor dy(Random(n, 20), type());
      for (int which = 0; which < count; ++which) {
        std::vector<double> dx(x[which]->size(), 0.0);
        for (int64_t i = 0; i < n; ++i) {
          const double slope = kind == v1::Operation::STOP_GRADIENT ? 0 : f.slope[which](at(0, i), at(1, i), at(2, i));
          dx[PlaceAlong(o.dims, o.of[which].strides, i)] += dy.exact()[i] * slope;
        }
        if (count == 1 && dx.size() != static_cast<size_t>(n)) continue;
        ExpectBoth(dx, type(), 2 * precision(), what + " backward", [&](void* out, bool add) {
          return OperateBackward(nullptr, o, which, dy.data(), out, type(), add);
        });
      }
    }
  }
}

// ---- attention ----

TEST_P(Tensors, BentScores) {
  const int64_t examples = 2, queries = 5, keys = 3, features = 4;
  const Tensor q(Random(examples * queries * features, 1), type()), k(Random(examples * keys * features, 2), type()),
      d(Random(examples * queries * keys, 3), type()), scale(Random(features, 4)), weight(std::vector<float>{0.7f});
  for (const bool additive : {false, true}) {
    const BentScores b{
        additive, examples, queries, keys, features, scale.floats(), additive ? nullptr : weight.floats()};
    std::vector<double> want(d.size(), 0.0), dq(q.size(), 0.0), dk(k.size(), 0.0), bent(q.size(), 0.0),
        slopes(q.size(), 0.0);
    for (int64_t n = 0; n < static_cast<int64_t>(d.size()); ++n) {
      const int64_t row = n / keys, key_row = row / queries * keys + n % keys;
      for (int64_t i = 0; i < features; ++i) {
        const double inner = additive ? 1 : scale.exact()[0], outer = additive ? scale.exact()[i] : weight.exact()[0];
        const double sum = q.exact()[row * features + i] + k.exact()[key_row * features + i],
                     at = std::tanh(inner * sum);
        want[n] += outer * at;
        const double g = d.exact()[n] * outer * (1 - at * at);
        dq[row * features + i] += g * inner;
        dk[key_row * features + i] += g * inner;
        bent[row * features + i] += d.exact()[n] * at;
        slopes[row * features + i] += g * sum;
      }
    }
    const auto n = static_cast<int64_t>(q.size());
    ExpectNear(Launched(static_cast<int64_t>(d.size()), type(),
                        [&](void* y) { return ScoreBent(nullptr, b, q.data(), k.data(), y, type()); }),
               want, precision(), "scores");
    for (const bool of_queries : {true, false}) {
      ExpectBoth(of_queries ? dq : dk, type(), 2 * precision(), "scores backward", [&](void* dx, bool add) {
        return ScoreBentBackward(nullptr, b, of_queries, q.data(), k.data(), d.data(), dx, type(), add);
      });
    }
    for (const bool of_slopes : {true, false}) {
      ExpectNear(Launched(n, DType::kFloat32,
                          [&](void* y) {
                            Memory other(static_cast<size_t>(n) * sizeof(float));
                            auto *const own = static_cast<float*>(y), *const rest = static_cast<float*>(other.data());
                            return ScoreBentSums(nullptr, b, q.data(), k.data(), d.data(), of_slopes ? rest : own,
                                                 of_slopes ? own : nullptr, type());
                          }),
                 of_slopes ? slopes : bent, 1e-5, "sums of scores");
    }
  }
}

}  // namespace
}  // namespace cairn::cudnn::kernels
