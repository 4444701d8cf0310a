// Attention without projections (worker/backend/score_attention.h): loops and matrix products, example by example.
#include "worker/backend/score_attention.h"

#include <algorithm>
#include <cmath>

#include "worker/backend/onednn/bound_variable.h"
#include "worker/backend/onednn/features.h"
#include "worker/backend/onednn/loop_op.h"
#include "worker/backend/onednn/matrix_product.h"
#include "worker/backend/onednn/weights_dropout.h"

namespace cairn::onednn {
namespace {

class ScoreAttentionOp : public LoopOp {
 public:
  ScoreAttentionOp(PlanBuilder& b, const Node& node, const std::vector<Value*>& in, const std::vector<Shape>& shapes,
                   Value* out)
      : LoopOp(b, in, shapes, node.output, out, BackwardReads::kInputs),
        a_(ScoreAttentionOf(node, shapes[0], shapes[1])),
        examples_(b.examples()),
        scale_(b, b.FindVariable(node, "scale")),
        weight_(b, b.FindVariable(node, "concat_score_weight")),
        weights_(b.New(MakeDesc({examples_ * a_.queries, a_.keys}, Tag::nc))),
        dropout_(b, node, b.groups().Trains(node) ? a_.dropout : 0.0f, a_.seed, weights_) {}

 private:
  void UseBackward(PlanBuilder& b) override {
    b.Use(weights_);
    dropout_.CompileBackward(b);
    scores_gradient_ = b.New(weights_->desc);
    sums_ = b.NewBytes(examples_ * (a_.features + 1) * static_cast<int64_t>(sizeof(double)));
    for (size_t i = 0; i < 3; ++i) parts_[i] = b.New(MakeDesc({examples_, Size(i)}, Tag::nc));
  }

  int64_t Size(size_t input) const {
    return input == 0 ? a_.queries * a_.features : a_.keys * (input == 1 ? a_.values : a_.features);
  }
  const float* q(int64_t e) const { return x(0) + e * Size(0); }
  const float* v(int64_t e) const { return x(1) + e * Size(1); }
  const float* k(int64_t e) const { return x(2) + e * Size(2); }
  float* Scores(Tensor* t, int64_t e) const { return t->data() + e * a_.queries * a_.keys; }
  int64_t Seen(int64_t t) const { return a_.causal ? std::min(t + 1, a_.keys) : a_.keys; }
  float Scale(int64_t i) const {
    const float* const scale = scale_.value();
    return scale == nullptr ? 1 : scale[a_.score == ScoreAttention::kAdditive ? i : 0];
  }
  float Weight() const { return weight_.value() == nullptr ? 1 : *weight_.value(); }

  void Score(int64_t e, float* scores) const {
    if (a_.score == ScoreAttention::kDot) {
      const MatrixProduct product{.transpose_b = 'T',
                                  .m = a_.queries,
                                  .n = a_.keys,
                                  .k = a_.features,
                                  .a_row = a_.features,
                                  .b_row = a_.features,
                                  .c_row = a_.keys,
                                  .alpha = Scale(0)};
      return MultiplyMatrices(product, q(e), k(e), 0, scores);
    }
    const bool additive = a_.score == ScoreAttention::kAdditive;
    for (int64_t t = 0; t < a_.queries; ++t) {
      for (int64_t s = 0; s < Seen(t); ++s) {
        const float *qt = q(e) + t * a_.features, *ks = k(e) + s * a_.features;
        float sum = 0;
        for (int64_t i = 0; i < a_.features; ++i)
          sum += additive ? Scale(i) * std::tanh(qt[i] + ks[i]) : std::tanh(Scale(0) * (qt[i] + ks[i]));
        scores[t * a_.keys + s] = additive ? sum : Weight() * sum;
      }
    }
  }

  void Compute(const Run& run, float* y) override {
    ForExamples(examples_, kParallelNumbersMin, [&](int64_t e) {
      float* const scores = Scores(weights_, e);
      Score(e, scores);
      for (int64_t t = 0; t < a_.queries; ++t) {
        float* const row = scores + t * a_.keys;
        const int64_t seen = Seen(t);
        const float max = *std::max_element(row, row + seen);
        double sum = 0;
        for (int64_t s = 0; s < seen; ++s) sum += row[s] = std::exp(row[s] - max);
        for (int64_t s = 0; s < a_.keys; ++s) row[s] = s < seen ? row[s] / static_cast<float>(sum) : 0.0f;
      }
    });
    dropout_.Forward(run);
    const MatrixProduct product{
        .m = a_.queries, .n = a_.values, .k = a_.keys, .a_row = a_.keys, .b_row = a_.values, .c_row = a_.values};
    ForExamples(examples_, kParallelNumbersMin, [&](int64_t e) {
      MultiplyMatrices(product, Scores(dropout_.dropped(), e), v(e), 0, y + e * a_.queries * a_.values);
    });
  }

  // Computes the gradients in parts_, since the key may be the value, and then copies them to those of the inputs.
  void Derive(const Run&, const float* dy) override {
    ForExamples(examples_, kParallelNumbersMin, [&](int64_t e) { DeriveExample(e, dy + e * a_.queries * a_.values); });
    for (size_t i = 0; i < 3; ++i) {
      if (dx(i) != nullptr) std::copy_n(parts_[i]->data(), examples_ * Size(i), dx(i));
    }
    const double* const sums = static_cast<const double*>(sums_->memory.get_data_handle());
    if (float* const to = scale_.gradient()) {
      const int64_t count = a_.score == ScoreAttention::kAdditive ? a_.features : 1;
      for (int64_t i = 0; i < count; ++i) {
        double sum = 0;
        for (int64_t e = 0; e < examples_; ++e) sum += sums[e * (a_.features + 1) + i];
        to[i] = static_cast<float>(sum);
      }
    }
    if (float* const to = weight_.gradient()) {
      double sum = 0;
      for (int64_t e = 0; e < examples_; ++e) sum += sums[e * (a_.features + 1) + a_.features];
      *to = static_cast<float>(sum);
    }
  }

  void DeriveExample(int64_t e, const float* dy) {
    float *const dq = parts_[0]->data() + e * Size(0), *const dv = parts_[1]->data() + e * Size(1),
                 *const dk = parts_[2]->data() + e * Size(2), *const ds = Scores(scores_gradient_, e);
    double* const sums = static_cast<double*>(sums_->memory.get_data_handle()) + e * (a_.features + 1);
    std::fill_n(sums, a_.features + 1, 0.0);
    MultiplyMatrices({.transpose_a = 'T',
                      .m = a_.keys,
                      .n = a_.values,
                      .k = a_.queries,
                      .a_row = a_.keys,
                      .b_row = a_.values,
                      .c_row = a_.values},
                     Scores(dropout_.dropped(), e), dy, 0, dv);
    MultiplyMatrices({.transpose_b = 'T',
                      .m = a_.queries,
                      .n = a_.keys,
                      .k = a_.values,
                      .a_row = a_.values,
                      .b_row = a_.values,
                      .c_row = a_.keys},
                     dy, v(e), 0, ds);
    const float* const weights = Scores(weights_, e);
    const float* const factors = dropout_.factors() == nullptr ? nullptr : Scores(dropout_.factors(), e);
    for (int64_t t = 0; t < a_.queries; ++t) {
      const int64_t begin = t * a_.keys;
      double dot = 0;
      for (int64_t s = 0; s < a_.keys; ++s) {
        if (factors != nullptr) ds[begin + s] *= factors[begin + s];
        dot += weights[begin + s] * ds[begin + s];
      }
      for (int64_t s = 0; s < a_.keys; ++s)
        ds[begin + s] = weights[begin + s] * (ds[begin + s] - static_cast<float>(dot));
    }
    if (a_.score == ScoreAttention::kDot) {
      DeriveDot(e, ds, dq, dk, sums);
    } else {
      DeriveBent(e, ds, dq, dk, sums);
    }
  }

  // ds: the gradient of the scores.
  void DeriveDot(int64_t e, const float* ds, float* dq, float* dk, double* sums) const {
    MatrixProduct product{.m = a_.queries,
                          .n = a_.features,
                          .k = a_.keys,
                          .a_row = a_.keys,
                          .b_row = a_.features,
                          .c_row = a_.features,
                          .alpha = Scale(0)};
    MultiplyMatrices(product, ds, k(e), 0, dq);
    product.transpose_a = 'T';
    product.m = a_.keys;
    product.k = a_.queries;
    MultiplyMatrices(product, ds, q(e), 0, dk);
    if (!scale_.trains()) return;
    for (int64_t t = 0; t < a_.queries; ++t) {
      for (int64_t s = 0; s < Seen(t); ++s) {
        float dot = 0;
        for (int64_t i = 0; i < a_.features; ++i) dot += q(e)[t * a_.features + i] * k(e)[s * a_.features + i];
        sums[0] += static_cast<double>(dot) * ds[t * a_.keys + s];
      }
    }
  }

  void DeriveBent(int64_t e, const float* ds, float* dq, float* dk, double* sums) const {
    const bool additive = a_.score == ScoreAttention::kAdditive;
    std::fill_n(dq, Size(0), 0.0f);
    std::fill_n(dk, Size(2), 0.0f);
    for (int64_t t = 0; t < a_.queries; ++t) {
      for (int64_t s = 0; s < Seen(t); ++s) {
        const float d = ds[t * a_.keys + s];
        for (int64_t i = 0; i < a_.features; ++i) {
          const float sum = q(e)[t * a_.features + i] + k(e)[s * a_.features + i];
          const float bent = std::tanh(additive ? sum : Scale(0) * sum), slope = 1 - bent * bent;
          const float g = d * Scale(i) * slope * (additive ? 1 : Weight());
          dq[t * a_.features + i] += g;
          dk[s * a_.features + i] += g;
          sums[additive ? i : 0] += static_cast<double>(d) * (additive ? bent : Weight() * slope * sum);
          if (!additive) sums[a_.features] += static_cast<double>(d) * bent;
        }
      }
    }
  }

  const ScoreAttention a_;
  const int64_t examples_;
  const BoundVariable scale_, weight_;
  Tensor* const weights_;  // the softmax: [examples, queries, keys]
  WeightsDropout dropout_;
  Tensor* scores_gradient_ = nullptr;
  Tensor* sums_ = nullptr;  // [examples, features + 1]: gradients of scale and of the score's weight, float64
  Tensor* parts_[3] = {};   // gradients of query, value and key
};

void CompileScoreAttention(PlanBuilder& b, const Node& node, const std::vector<Value*>& in, Value* out) {
  std::vector<Value*> three = in;
  if (three.size() == 2) three.push_back(three[1]);
  std::vector<Shape> shapes;
  for (size_t i = 0; i < 3; ++i)
    shapes.push_back(b.graph().nodes()[node.inputs[std::min(i, node.inputs.size() - 1)]].output);
  b.AddOp(node.variables, out, std::make_unique<ScoreAttentionOp>(b, node, three, shapes, out));
}

constexpr Layer kLayers[] = {
    {LayerKind::kAttention, CompileScoreAttention},
    {LayerKind::kAdditiveAttention, CompileScoreAttention},
};

}  // namespace

absl::Span<const Layer> ScoreAttentionLayers() { return kLayers; }

}  // namespace cairn::onednn
