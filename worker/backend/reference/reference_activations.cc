#include <algorithm>
#include <cmath>
#include <numbers>

#include "worker/backend/reference/reference_ops.h"
#include "worker/backend/sparsemax.h"

namespace cairn::reference {
namespace {

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
// Of the normal distribution.
double Cumulative(double x) { return 0.5 * (1 + std::erf(x / std::numbers::sqrt2)); }
double Density(double x) { return std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi); }

// Hendrycks & Gimpel 2016: x Phi(x) with tanh(sqrt(2 / pi) (x + 0.044715 x^3)).
constexpr double kGeluCubic = 0.044715;
double GeluInner(double x) { return std::sqrt(2 / std::numbers::pi) * (x + kGeluCubic * x * x * x); }

// log(1 + e^x)
double Softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

// Klambauer et al. 2017.
constexpr double kSeluAlpha = 1.6732632423543772, kSeluScale = 1.0507009873554805;

// Number by number, as keras.activations has them.
double Value(v1::Activation activation, double alpha, double x) {
  switch (activation) {
    case v1::RELU: return std::max(x, 0.0);
    case v1::LEAKY_RELU: return x > 0 ? x : alpha * x;
    case v1::SIGMOID: return Sigmoid(x);
    case v1::TANH: return std::tanh(x);
    case v1::ELU: return x > 0 ? x : alpha * std::expm1(x);
    case v1::GELU: return x * Cumulative(x);
    case v1::GELU_TANH: return 0.5 * x * (1 + std::tanh(GeluInner(x)));
    case v1::SILU: return x * Sigmoid(x);
    case v1::SOFTPLUS: return Softplus(x);
    case v1::RELU6: return std::clamp(x, 0.0, alpha);
    case v1::SELU: return kSeluScale * (x > 0 ? x : kSeluAlpha * std::expm1(x));
    case v1::HARD_SIGMOID:
    case v1::HARD_SIGMOID_KERAS2: return std::clamp(alpha * x + 0.5, 0.0, 1.0);
    case v1::HARD_SILU: return x * std::clamp(x / 6 + 0.5, 0.0, 1.0);
    case v1::EXPONENTIAL: return std::exp(x);
    case v1::SOFTSIGN: return x / (1 + std::abs(x));
    case v1::MISH: return x * std::tanh(Softplus(x));
    case v1::LOG_SIGMOID: return -Softplus(-x);
    case v1::CELU: return x > 0 ? x : alpha * std::expm1(x / alpha);
    case v1::HARD_TANH: return std::clamp(x, -1.0, 1.0);
    case v1::TANH_SHRINK: return x - std::tanh(x);
    case v1::SOFT_SHRINK: return x > alpha ? x - alpha : x < -alpha ? x + alpha : 0;
    case v1::HARD_SHRINK: return std::abs(x) > alpha ? x : 0;
    case v1::THRESHOLD: return x > alpha ? x : 0;
    case v1::SQUAREPLUS: return (x + std::sqrt(x * x + 4)) / 2;
    case v1::SPARSE_PLUS: return x <= -1 ? 0 : x < 1 ? (x + 1) * (x + 1) / 4 : x;
    case v1::SPARSE_SIGMOID: return std::clamp((x + 1) / 2, 0.0, 1.0);
    default: return x;
  }
}

double Derivative(v1::Activation activation, double alpha, double x) {
  switch (activation) {
    case v1::RELU: return x > 0 ? 1 : 0;
    case v1::LEAKY_RELU: return x > 0 ? 1 : alpha;
    case v1::SIGMOID: return Sigmoid(x) * (1 - Sigmoid(x));
    case v1::TANH: return 1 - std::tanh(x) * std::tanh(x);
    case v1::ELU: return x > 0 ? 1 : alpha * std::exp(x);
    case v1::GELU: return Cumulative(x) + x * Density(x);
    case v1::GELU_TANH: {
      const double t = std::tanh(GeluInner(x));
      const double inner = std::sqrt(2 / std::numbers::pi) * (1 + 3 * kGeluCubic * x * x);
      return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner;
    }
    case v1::SILU: return Sigmoid(x) * (1 + x * (1 - Sigmoid(x)));
    case v1::SOFTPLUS: return Sigmoid(x);
    case v1::RELU6: return x > 0 && x < alpha ? 1 : 0;
    case v1::SELU: return kSeluScale * (x > 0 ? 1 : kSeluAlpha * std::exp(x));
    case v1::HARD_SIGMOID:
    case v1::HARD_SIGMOID_KERAS2: return std::abs(alpha * x) < 0.5 ? alpha : 0;
    case v1::HARD_SILU: return x <= -3 ? 0 : x < 3 ? x / 3 + 0.5 : 1;
    case v1::EXPONENTIAL: return std::exp(x);
    case v1::SOFTSIGN: return 1 / ((1 + std::abs(x)) * (1 + std::abs(x)));
    case v1::MISH: {
      const double t = std::tanh(Softplus(x));
      return t + x * (1 - t * t) * Sigmoid(x);
    }
    case v1::LOG_SIGMOID: return Sigmoid(-x);
    case v1::CELU: return x > 0 ? 1 : std::exp(x / alpha);
    case v1::HARD_TANH: return std::abs(x) < 1 ? 1 : 0;
    case v1::TANH_SHRINK: return std::tanh(x) * std::tanh(x);
    case v1::SOFT_SHRINK:
    case v1::HARD_SHRINK: return std::abs(x) > alpha ? 1 : 0;
    case v1::THRESHOLD: return x > alpha ? 1 : 0;
    case v1::SQUAREPLUS: return (1 + x / std::sqrt(x * x + 4)) / 2;
    case v1::SPARSE_PLUS: return x <= -1 ? 0 : x < 1 ? (x + 1) / 2 : 1;
    case v1::SPARSE_SIGMOID: return std::abs(x) < 1 ? 0.5 : 0;
    default: return 1;
  }
}

}  // namespace

void Activate(const RowActivation& f, In x, Out y) {
  const auto [activation, alpha, channels] = f;
  if (activation == v1::SPARSEMAX) {
    for (size_t row = 0; row < x.size(); row += channels) Sparsemax(x.data() + row, channels, y.data() + row);
    return;
  }
  if (activation != v1::SOFTMAX && activation != v1::LOG_SOFTMAX) {
    for (size_t i = 0; i < x.size(); ++i) y[i] = Value(activation, alpha, x[i]);
    return;
  }
  for (size_t row = 0; row < x.size(); row += channels) {
    const double max = *std::max_element(x.begin() + row, x.begin() + row + channels);
    double sum = 0;
    for (int64_t c = 0; c < channels; ++c) sum += y[row + c] = std::exp(x[row + c] - max);
    for (int64_t c = 0; c < channels; ++c) {
      y[row + c] = activation == v1::SOFTMAX ? y[row + c] / sum : x[row + c] - max - std::log(sum);
    }
  }
}

void ActivateBackward(const RowActivation& f, In x, In y, In dy, Out dx) {
  const auto [activation, alpha, channels] = f;
  if (activation == v1::SPARSEMAX) {
    for (size_t row = 0; row < x.size(); row += channels) {
      SparsemaxBackward(y.data() + row, dy.data() + row, channels, dx.data() + row);
    }
    return;
  }
  if (activation == v1::LOG_SOFTMAX) {
    for (size_t row = 0; row < x.size(); row += channels) {
      double sum = 0;
      for (int64_t c = 0; c < channels; ++c) sum += dy[row + c];
      for (int64_t c = 0; c < channels; ++c) dx[row + c] = dy[row + c] - std::exp(y[row + c]) * sum;
    }
    return;
  }
  if (activation != v1::SOFTMAX) {
    for (size_t i = 0; i < x.size(); ++i) dx[i] = dy[i] * Derivative(activation, alpha, x[i]);
    return;
  }
  for (size_t row = 0; row < x.size(); row += channels) {
    double dot = 0;
    for (int64_t c = 0; c < channels; ++c) dot += y[row + c] * dy[row + c];
    for (int64_t c = 0; c < channels; ++c) dx[row + c] = y[row + c] * (dy[row + c] - dot);
  }
}

}  // namespace cairn::reference
