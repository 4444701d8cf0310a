// Activations by loops on plain buffers (IsFurtherActivation). Formulas: worker/backend/reference.
#include <algorithm>
#include <cmath>

#include "worker/backend/fusion.h"
#include "worker/backend/onednn/features.h"
#include "worker/backend/onednn/loop_op.h"
#include "worker/backend/sparsemax.h"

namespace cairn::onednn {
namespace {

constexpr float kSeluAlpha = 1.6732632423543772f, kSeluScale = 1.0507009873554805f;

// number = fn(number), for all, in parallel.
template <typename Fn>
void ForAll(int64_t count, const Fn& fn) {
#pragma omp parallel for schedule(static) if (count >= kParallelNumbersMin)
  for (int64_t i = 0; i < count; ++i) fn(i);
}

float Sigmoid(float x) { return 1 / (1 + std::exp(-x)); }
float Softplus(float x) { return std::max(x, 0.0f) + std::log1p(std::exp(-std::abs(x))); }
float Clamp(float x, float low, float high) { return x < low ? low : x > high ? high : x; }

void Activate(v1::Activation f, float a, const float* x, float* y, int64_t count) {
  const auto all = [&](const auto& fn) { ForAll(count, [&](int64_t i) { y[i] = fn(x[i]); }); };
  switch (f) {
    case v1::RELU6: return all([a](float v) { return Clamp(v, 0, a); });
    case v1::HARD_SILU: return all([](float v) { return v * Clamp(v / 6 + 0.5f, 0, 1); });
    case v1::EXPONENTIAL: return all([](float v) { return std::exp(v); });
    case v1::MISH: return all([](float v) { return v * std::tanh(Softplus(v)); });
    case v1::SELU: return all([](float v) { return kSeluScale * (v > 0 ? v : kSeluAlpha * std::expm1(v)); });
    case v1::HARD_SIGMOID:
    case v1::HARD_SIGMOID_KERAS2: return all([a](float v) { return Clamp(a * v + 0.5f, 0, 1); });
    case v1::SOFTSIGN: return all([](float v) { return v / (1 + std::abs(v)); });
    case v1::LOG_SIGMOID: return all([](float v) { return std::min(v, 0.0f) - std::log1p(std::exp(-std::abs(v))); });
    case v1::CELU: return all([a](float v) { return v > 0 ? v : a * std::expm1(v / a); });
    case v1::HARD_TANH: return all([](float v) { return Clamp(v, -1, 1); });
    case v1::TANH_SHRINK: return all([](float v) { return v - std::tanh(v); });
    case v1::SOFT_SHRINK: return all([a](float v) { return v > a ? v - a : v < -a ? v + a : 0; });
    case v1::HARD_SHRINK: return all([a](float v) { return std::abs(v) > a ? v : 0; });
    case v1::THRESHOLD: return all([a](float v) { return v > a ? v : 0; });
    case v1::SQUAREPLUS: return all([](float v) { return (v + std::sqrt(v * v + 4)) / 2; });
    case v1::SPARSE_PLUS: return all([](float v) { return v <= -1 ? 0 : v < 1 ? (v + 1) * (v + 1) / 4 : v; });
    case v1::SPARSE_SIGMOID: return all([](float v) { return Clamp((v + 1) / 2, 0, 1); });
    default: return;
  }
}

void Derive(v1::Activation f, float a, const float* x, const float* dy, float* dx, int64_t count) {
  const auto all = [&](const auto& fn) { ForAll(count, [&](int64_t i) { dx[i] = dy[i] * fn(x[i]); }); };
  switch (f) {
    case v1::RELU6: return all([a](float v) { return v > 0 && v < a ? 1.0f : 0.0f; });
    case v1::HARD_SILU: return all([](float v) { return v <= -3 ? 0 : v < 3 ? v / 3 + 0.5f : 1; });
    case v1::EXPONENTIAL: return all([](float v) { return std::exp(v); });
    case v1::MISH:
      return all([](float v) {
        const float t = std::tanh(Softplus(v));
        return t + v * (1 - t * t) * Sigmoid(v);
      });
    case v1::SELU: return all([](float v) { return kSeluScale * (v > 0 ? 1 : kSeluAlpha * std::exp(v)); });
    case v1::HARD_SIGMOID:
    case v1::HARD_SIGMOID_KERAS2: return all([a](float v) { return std::abs(a * v) < 0.5f ? a : 0; });
    case v1::SOFTSIGN: return all([](float v) { return 1 / ((1 + std::abs(v)) * (1 + std::abs(v))); });
    case v1::LOG_SIGMOID: return all([](float v) { return Sigmoid(-v); });
    case v1::CELU: return all([a](float v) { return v > 0 ? 1 : std::exp(v / a); });
    case v1::HARD_TANH: return all([](float v) { return std::abs(v) < 1 ? 1.0f : 0.0f; });
    case v1::TANH_SHRINK: return all([](float v) { return std::tanh(v) * std::tanh(v); });
    case v1::SOFT_SHRINK:
    case v1::HARD_SHRINK: return all([a](float v) { return std::abs(v) > a ? 1.0f : 0.0f; });
    case v1::THRESHOLD: return all([a](float v) { return v > a ? 1.0f : 0.0f; });
    case v1::SQUAREPLUS: return all([](float v) { return (1 + v / std::sqrt(v * v + 4)) / 2; });
    case v1::SPARSE_PLUS: return all([](float v) { return v <= -1 ? 0 : v < 1 ? (v + 1) / 2 : 1; });
    case v1::SPARSE_SIGMOID: return all([](float v) { return std::abs(v) < 1 ? 0.5f : 0.0f; });
    default: return;
  }
}

class FurtherActivationOp : public LoopOp {
 public:
  FurtherActivationOp(PlanBuilder& b, const Node& node, Value* in, Value* out)
      : LoopOp(b, {in}, {node.output}, node.output, out, BackwardReads::kInputs),
        activation_(node.activation),
        alpha_(ActivationAlpha(node)),
        count_(b.examples() * NumElements(node.output)) {}

 private:
  void Compute(const Run&, float* y) override { Activate(activation_, alpha_, x(), y, count_); }
  void Derive(const Run&, const float* dy) override {
    if (dx() != nullptr) onednn::Derive(activation_, alpha_, x(), dy, dx(), count_);
  }

  const v1::Activation activation_;
  const float alpha_;
  const int64_t count_;
};

// x - log(sum(e^x)) of each row; dx = dy - e^y * sum(dy).
class LogSoftmaxOp : public LoopOp {
 public:
  LogSoftmaxOp(PlanBuilder& b, const Shape& shape, Value* in, Value* out)
      : LoopOp(b, {in}, {shape}, shape, out, BackwardReads::kOutput),
        columns_(shape.back()),
        rows_(b.examples() * NumElements(shape) / columns_) {}

 private:
  void Compute(const Run&, float* y) override {
    ForExamples(rows_, rows_ * columns_, [&](int64_t row) {
      const float* from = x() + row * columns_;
      const float max = *std::max_element(from, from + columns_);
      double sum = 0;
      for (int64_t c = 0; c < columns_; ++c) sum += std::exp(from[c] - max);
      const float shift = max + static_cast<float>(std::log(sum));
      for (int64_t c = 0; c < columns_; ++c) y[row * columns_ + c] = from[c] - shift;
    });
  }

  void Derive(const Run&, const float* dy) override {
    if (dx() == nullptr) return;
    ForExamples(rows_, rows_ * columns_, [&](int64_t row) {
      const float *g = dy + row * columns_, *of = y() + row * columns_;
      float* to = dx() + row * columns_;
      double sum = 0;
      for (int64_t c = 0; c < columns_; ++c) sum += g[c];
      for (int64_t c = 0; c < columns_; ++c) to[c] = g[c] - std::exp(of[c]) * static_cast<float>(sum);
    });
  }

  const int64_t columns_, rows_;
};

class SparsemaxOp : public LoopOp {
 public:
  SparsemaxOp(PlanBuilder& b, const Shape& shape, Value* in, Value* out)
      : LoopOp(b, {in}, {shape}, shape, out, BackwardReads::kOutput),
        columns_(shape.back()),
        rows_(b.examples() * NumElements(shape) / columns_) {}

 private:
  void Compute(const Run&, float* y) override {
    ForExamples(rows_, rows_ * columns_,
                [&](int64_t row) { Sparsemax(x() + row * columns_, columns_, y + row * columns_); });
  }
  void Derive(const Run&, const float* dy) override {
    if (dx() == nullptr) return;
    ForExamples(rows_, rows_ * columns_, [&](int64_t row) {
      const int64_t begin = row * columns_;
      SparsemaxBackward(y() + begin, dy + begin, columns_, dx() + begin);
    });
  }

  const int64_t columns_, rows_;
};

}  // namespace

void FurtherActivationRow(const Activation& f, const float* x, float* y, int64_t count) {
  Activate(f.kind, f.alpha, x, y, count);
}

void FurtherSlopeRow(const Activation& f, const float* x, float* g, int64_t count) {
  Derive(f.kind, f.alpha, x, g, g, count);
}

std::unique_ptr<Op> MakeFurtherActivation(PlanBuilder& b, const Node& node, Value* in, Value* out) {
  if (node.activation == v1::LOG_SOFTMAX) return std::make_unique<LogSoftmaxOp>(b, node.output, in, out);
  if (node.activation == v1::SPARSEMAX) return std::make_unique<SparsemaxOp>(b, node.output, in, out);
  return std::make_unique<FurtherActivationOp>(b, node, in, out);
}

}  // namespace cairn::onednn
