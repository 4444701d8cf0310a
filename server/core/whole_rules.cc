#include "server/core/whole_rules.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "common/model/optimizer_variables.h"
#include "common/tensor/vectorize.h"
#include "server/core/newton_schulz.h"
#include "server/core/power.h"

namespace cairn {
namespace {

constexpr int kLanes = 8;  // partial sums, so that processors add several numbers at a time; added up in order

// (w - w * weight_decay * lr)^2 or x^2
struct DecayedValue {
  const float* w;
  float weight_decay, learning_rate;
  float operator[](int64_t i) const { return w[i] - w[i] * weight_decay * learning_rate; }
};

template <typename Numbers>
inline double SumOfSquares(Numbers x, int64_t n) {
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const double number = x[i + lane];
      lanes[lane] += number * number;
    }
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  for (; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  return sum;
}

CAIRN_VECTORIZED double Squares(const float* x, int64_t n) { return SumOfSquares(x, n); }
CAIRN_VECTORIZED double SquaresOfDecayed(DecayedValue w, int64_t n) { return SumOfSquares(w, n); }

// w - factor * io, stored in io; w after weight decay
CAIRN_VECTORIZED void StepBy(float factor, DecayedValue w, float* __restrict io, int64_t n) {
  for (int64_t i = 0; i < n; ++i) io[i] = w[i] - factor * io[i];
}

CAIRN_VECTORIZED void DivideBy(float divisor, float* io, int64_t n) {
  for (int64_t i = 0; i < n; ++i) io[i] = io[i] / divisor;
}

// ---- Lamb ----

// 1 - beta^t
struct BiasCorrections {
  float beta_1, beta_2;
};

// m, v; u is stored in io.
CAIRN_VECTORIZED void LambMoments(float* __restrict io, float* __restrict m, float* __restrict v, int64_t n,
                                  Coefficients c, BiasCorrections by) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = io[i] / c.examples;
    m[i] = m[i] + (g - m[i]) * c.one_minus_beta_1;
    v[i] = v[i] + (g * g - v[i]) * c.one_minus_beta_2;
    io[i] = m[i] / by.beta_1 / (std::sqrt(v[i] / by.beta_2) + c.epsilon);
  }
}

void Lamb(const OptimizerRule& rule, const Coefficients& c, uint64_t t, const WholeVariable& x, DecayedValue w) {
  LambMoments(x.io, x.slots[0], x.slots[1], x.n, c,
              {.beta_1 = static_cast<float>(1 - WholePower(rule.beta_1, t)),
               .beta_2 = static_cast<float>(1 - WholePower(rule.beta_2, t))});
  const auto values = static_cast<float>(std::sqrt(SquaresOfDecayed(w, x.n)));
  const auto update = static_cast<float>(std::sqrt(Squares(x.io, x.n)));
  const float ratio = values > 0 && update > 0 ? values / update : 1.0f;
  StepBy(ratio * c.learning_rate, w, x.io, x.n);
}

// ---- Adafactor ----

struct Means {
  float beta_2, one_minus_beta_2, epsilon;
};

CAIRN_VECTORIZED void VectorMeans(float* __restrict io, float* __restrict v, int64_t n, Means k) {
  for (int64_t i = 0; i < n; ++i) {
    v[i] = k.beta_2 * v[i] + k.one_minus_beta_2 * (io[i] * io[i] + k.epsilon);
    io[i] = io[i] / std::sqrt(v[i]);
  }
}

// Adds a row's g^2 + epsilon to those of its columns; returns their sum.
CAIRN_VECTORIZED double AddRow(const float* __restrict g, double* __restrict columns, int64_t n, float epsilon) {
  double lanes[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) {
    const double q = static_cast<double>(g[i] * g[i] + epsilon);
    columns[i] += q;
    lanes[i % kLanes] += q;
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

// u = g / sqrt(r * c), stored in io. r: the row's share.
CAIRN_VECTORIZED void DivideByRoots(float* __restrict io, const float* __restrict c, float r, int64_t n) {
  for (int64_t i = 0; i < n; ++i) io[i] = io[i] / std::sqrt(r * c[i]);
}

double MeanOf(const float* x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  return sum / static_cast<double>(n);
}

// One matrix. rows, columns: its r and c; null where it follows from the other one (Matrices).
void MatrixMeans(const Matrices& m, float* io, float* rows, float* columns, const Means& k) {
  std::vector<double> of_columns(static_cast<size_t>(m.columns), 0.0);
  float one_column = 0;
  const auto blend = [&k](float old, double sum, int64_t count) {
    return k.beta_2 * old + k.one_minus_beta_2 * static_cast<float>(sum / static_cast<double>(count));
  };
  for (int64_t i = 0; i < m.rows; ++i) {
    const double sum = AddRow(io + i * m.columns, of_columns.data(), m.columns, k.epsilon);
    if (rows != nullptr) rows[i] = blend(rows[i], sum, m.columns);
  }
  const float mean = rows == nullptr ? 1.0f : static_cast<float>(MeanOf(rows, m.rows));
  if (columns == nullptr) {
    one_column = mean;
    columns = &one_column;
  } else {
    for (int64_t j = 0; j < m.columns; ++j) columns[j] = blend(columns[j], of_columns[static_cast<size_t>(j)], m.rows);
  }
  for (int64_t i = 0; i < m.rows; ++i) {
    DivideByRoots(io + i * m.columns, columns, rows == nullptr ? 1.0f : rows[i] / mean, m.columns);
  }
}

void Adafactor(const OptimizerRule& rule, const Coefficients& c, uint64_t t, const WholeVariable& x, DecayedValue w) {
  const AdafactorRule& own = rule.own.adafactor;
  const double kept = 1 - NegativePower(static_cast<double>(t), -own.beta_2_decay);
  const Means k = {static_cast<float>(kept), static_cast<float>(1 - kept), static_cast<float>(own.epsilon_1)};
  DivideBy(c.examples, x.io, x.n);
  float* const slot = x.slots[0];
  if (x.shape.size() < 2) {
    VectorMeans(x.io, slot, x.n, k);
  } else {
    const Matrices m = MatricesOf(Shape(x.shape.begin(), x.shape.end()));
    float* const columns = slot + (m.keeps_rows() ? m.count * m.rows : 0);
    for (int64_t i = 0; i < m.count; ++i) {
      MatrixMeans(m, x.io + i * m.rows * m.columns, m.keeps_rows() ? slot + i * m.rows : nullptr,
                  m.keeps_columns() ? columns + i * m.columns : nullptr, k);
    }
  }
  const auto rms = [&x](double squares) { return static_cast<float>(std::sqrt(squares / static_cast<double>(x.n))); };
  const float rate = std::min(c.learning_rate, static_cast<float>(1 / std::sqrt(static_cast<double>(t))));
  const float size = std::max(static_cast<float>(own.epsilon_2), rms(SquaresOfDecayed(w, x.n))) * rate;
  const float excess = rms(Squares(x.io, x.n)) / static_cast<float>(own.clip_threshold);
  DivideBy(excess > 1 ? excess : 1.0f, x.io, x.n);
  StepBy(size, w, x.io, x.n);
}

// ---- Muon ----

// m; u is stored in io.
CAIRN_VECTORIZED void MuonMomentum(float* __restrict io, float* __restrict m, int64_t n, Coefficients c,
                                   float momentum_minus_1, bool nesterov) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = io[i] / c.examples;
    m[i] = m[i] + (g + m[i] * momentum_minus_1);
    io[i] = nesterov ? g + c.momentum * m[i] : m[i];
  }
}

void Muon(const OptimizerRule& rule, const Coefficients& c, const WholeVariable& x, DecayedValue w) {
  const MuonRule& own = rule.own.muon;
  MuonMomentum(x.io, x.slots[0], x.n, c, static_cast<float>(rule.momentum - 1), own.nesterov);
  const NewtonSchulz iteration = {static_cast<float>(own.a), static_cast<float>(own.b), static_cast<float>(own.c),
                                  own.steps};
  Orthogonalize(iteration, x.shape[0], x.shape[1], x.io);
  const double side = static_cast<double>(std::max(x.shape[0], x.shape[1]));
  const double scale = own.rms_rate > 0 ? std::sqrt(side) * own.rms_rate : 1;
  StepBy(static_cast<float>(c.learning_rate * scale), w, x.io, x.n);
}

}  // namespace

void ApplyWholeRule(const OptimizerRule& rule, const Coefficients& c, uint64_t t, const WholeVariable& v) {
  const DecayedValue w = {v.w, c.weight_decay, c.learning_rate};
  switch (rule.rule) {
    case UpdateRule::kLamb: return Lamb(rule, c, t, v, w);
    case UpdateRule::kAdafactor: return Adafactor(rule, c, t, v, w);
    case UpdateRule::kMuon: return Muon(rule, c, v, w);
    default: CAIRN_CHECK(false, "the rule is element-wise");
  }
}

}  // namespace cairn
