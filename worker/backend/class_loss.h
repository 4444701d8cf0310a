// Losses of one row of numbers: cross-entropies and the mean squared error, with the formulas and the clipping of
// keras.losses. x: the outputs; t: the target; g: the gradient with respect to x, empty if it is not needed.
//
// Pure functions; any thread. The other losses are in row_loss.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/types/span.h"

namespace cairn::row {

// keras.config.epsilon(): probabilities are clipped to [epsilon, 1 - epsilon] before a logarithm.
inline constexpr double kEpsilon = 1e-7;

template <typename Real>
int64_t ArgMax(absl::Span<const Real> x) {
  return std::max_element(x.begin(), x.end()) - x.begin();
}

template <typename Real>
Real Clip(Real p) {
  return std::clamp(p, Real(kEpsilon), Real(1 - kEpsilon));
}
template <typename Real>
bool Clipped(Real p) {
  return p < Real(kEpsilon) || p > Real(1 - kEpsilon);
}

// Writes softmax(x) to p and returns log(sum(exp(x))).
template <typename Real>
Real Softmax(absl::Span<const Real> x, absl::Span<Real> p) {
  const Real max = *std::max_element(x.begin(), x.end());
  Real sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += p[i] = std::exp(x[i] - max);
  for (Real& v : p) v /= sum;
  return max + std::log(sum);
}

template <typename Real>
Real Sigmoid(Real x) {
  return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
}

// ---- cross-entropy over classes ----

// keras.ops.categorical_crossentropy(from_logits=True): sum_j t_j (log sum exp x - x_j).
template <typename Real>
double CategoricalFromLogits(absl::Span<const Real> x, absl::Span<const Real> t, absl::Span<Real> scratch,
                             absl::Span<Real> g) {
  const Real log_sum = Softmax(x, scratch);
  Real total = 0;  // the sum of t: 1 for a distribution
  double loss = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    total += t[i];
    if (t[i] != 0) loss += t[i] * (log_sum - x[i]);
  }
  for (size_t i = 0; i < g.size(); ++i) g[i] = total * scratch[i] - t[i];
  return loss;
}

// keras.ops.categorical_crossentropy: the outputs are divided by their sum, then clipped.
template <typename Real>
double CategoricalFromProbabilities(absl::Span<const Real> x, absl::Span<const Real> t, absl::Span<Real> g) {
  Real sum = 0;
  for (Real v : x) sum += v;
  double loss = 0;
  Real weighted = 0;  // sum_j n_j dL/dn_j, n = x / sum
  for (size_t i = 0; i < x.size(); ++i) {
    const Real n = x[i] / sum;
    if (t[i] != 0) loss -= t[i] * std::log(Clip(n));
    if (!Clipped(n)) weighted -= t[i];
  }
  for (size_t i = 0; i < g.size(); ++i) {
    const Real n = x[i] / sum;
    g[i] = ((Clipped(n) ? Real(0) : -t[i] / n) - weighted) / sum;
  }
  return loss;
}

// keras.ops.sparse_categorical_crossentropy: the outputs are clipped, and their logarithms are used as logits.
template <typename Real>
double SparseFromProbabilities(absl::Span<const Real> x, absl::Span<const Real> t, absl::Span<Real> g) {
  Real sum = 0;
  for (Real v : x) sum += Clip(v);
  const int64_t label = ArgMax(t);
  for (size_t i = 0; i < g.size(); ++i) g[i] = Clipped(x[i]) ? Real(0) : 1 / sum;
  if (!g.empty() && !Clipped(x[label])) g[label] -= 1 / x[label];
  return std::log(sum) - std::log(Clip(x[label]));
}

// ---- element-wise, the mean over the outputs ----

// keras.ops.binary_crossentropy(from_logits=True): max(x, 0) - x t + log(1 + exp(-|x|)).
template <typename Real>
double BinaryFromLogits(absl::Span<const Real> x, absl::Span<const Real> t, absl::Span<Real> g) {
  const Real n = static_cast<Real>(x.size());
  double loss = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    loss += std::max(x[i], Real(0)) - x[i] * t[i] + std::log1p(std::exp(-std::abs(x[i])));
    if (!g.empty()) g[i] = (Sigmoid(x[i]) - t[i]) / n;
  }
  return loss / n;
}

template <typename Real>
double BinaryFromProbabilities(absl::Span<const Real> x, absl::Span<const Real> t, absl::Span<Real> g) {
  const Real n = static_cast<Real>(x.size());
  double loss = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const Real p = Clip(x[i]);
    loss -= t[i] * std::log(p) + (1 - t[i]) * std::log(1 - p);
    if (!g.empty()) g[i] = Clipped(x[i]) ? Real(0) : (p - t[i]) / (p * (1 - p)) / n;
  }
  return loss / n;
}

template <typename Real>
double MeanSquared(absl::Span<const Real> x, absl::Span<const Real> t, absl::Span<Real> g) {
  const Real n = static_cast<Real>(x.size());
  double loss = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const Real error = x[i] - t[i];
    loss += error * error;
    if (!g.empty()) g[i] = 2 * error / n;
  }
  return loss / n;
}

}  // namespace cairn::row
