// Goal: each loss of row_loss.h is Keras' formula, written out again here number by number, and its gradient the
// derivative, in float64 and float32; outputs of several positions are rows whose losses are averaged; weights of
// examples and ignored classes count as said; bad targets are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>

#include "tests/unit/model/model_text.h"
#include "worker/backend/loss.h"

namespace cairn {
namespace {

using Row = std::vector<double>;
using Formula = std::function<double(const Row& x, const Row& t)>;

constexpr double kEps = 1e-7;
double Clip(double p) { return std::min(std::max(p, kEps), 1 - kEps); }
double Mean(const Row& x, const Row& t, const std::function<double(double, double)>& of) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += of(x[i], t[i]);
  return sum / static_cast<double>(x.size());
}
double Sum(const Row& x, const Row& t, const std::function<double(double, double)>& of) {
  return Mean(x, t, of) * static_cast<double>(x.size());
}
Row Softmax(const Row& x) {
  Row p;
  for (double v : x) p.push_back(std::exp(v));
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& v : p) v /= sum;
  return p;
}
double Focal(const Row& p, const Row& t, double alpha, double gamma) {
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  return Sum(p, t, [&](double v, double y) {
    const double c = Clip(v / sum);
    return -alpha * std::pow(1 - c, gamma) * y * std::log(c);
  });
}
double BinaryFocal(double p, double y, double gamma, double weight) {
  const double entropy = -(y * std::log(Clip(p)) + (1 - y) * std::log(1 - Clip(p)));
  return weight * std::pow(1 - (y * p + (1 - y) * (1 - p)), gamma) * entropy;
}

struct Case {
  std::string text;
  std::vector<float> labels;  // of two examples of four outputs
  Formula formula;
  bool probabilities = false;  // else any outputs
};

std::vector<Case> Cases() {
  const std::vector<float> any = {0.5f, -1, 2, 0.25f, 1, 0, -0.5f, 3}, sides = {1, -1, 1, 0, -1, 1, 1, -1},
                           sides_as = {1, -1, 1, -1, -1, 1, 1, -1}, shares = {0, 1, 0, 0, 0.25f, 0.5f, 0.25f, 0},
                           bits = {1, 0, 1, 1, 0, 0, 1, 0};
  const auto mean = [](auto of) { return [of](const Row& x, const Row& t) { return Mean(x, t, of); }; };
  return {
      {"kind: MEAN_ABSOLUTE_ERROR", any, mean([](double x, double t) { return std::abs(x - t); })},
      {"kind: MEAN_ABSOLUTE_PERCENTAGE_ERROR", {0.5f, -1, 2, 0.25f, 1, 4, -0.5f, 3}, mean([](double x, double t) {
         return 100 * std::abs(x - t) / std::max(std::abs(t), kEps);
       })},
      {"kind: MEAN_SQUARED_LOGARITHMIC_ERROR", any, mean([](double x, double t) {
         const double d = std::log(std::max(x, kEps) + 1) - std::log(std::max(t, kEps) + 1);
         return d * d;
       })},
      {"kind: HUBER delta: 0.5", any, mean([](double x, double t) {
         const double e = std::abs(x - t);
         return e <= 0.5 ? 0.5 * e * e : 0.5 * e - 0.125;
       })},
      {"kind: LOG_COSH", any, mean([](double x, double t) { return std::log(std::cosh(x - t)); })},
      {"kind: KL_DIVERGENCE", shares,
       [](const Row& x, const Row& t) {
         return Sum(x, t, [](double p, double y) {
           const double c = std::min(std::max(y, kEps), 1.0);
           return c * std::log(c / std::min(std::max(p, kEps), 1.0));
         });
       },
       true},
      {"kind: POISSON", bits, mean([](double x, double t) { return x - t * std::log(x + kEps); }), true},
      {"kind: HINGE", sides, mean([](double x, double t) { return std::max(1 - (t > 0 ? 1 : -1) * x, 0.0); })},
      {"kind: SQUARED_HINGE", sides,
       mean([](double x, double t) { return std::pow(std::max(1 - (t > 0 ? 1 : -1) * x, 0.0), 2); })},
      {"kind: CATEGORICAL_HINGE",
       {2, 0},
       [](const Row& x, const Row& t) {
         double own = 0, most = -1e9;
         for (size_t i = 0; i < x.size(); ++i) {
           own += t[i] * x[i];
           most = std::max(most, (1 - t[i]) * x[i]);
         }
         return std::max(most - own + 1, 0.0);
       }},
      {"kind: COSINE_SIMILARITY axis: -1", any,
       [](const Row& x, const Row& t) {
         const double xx = Sum(x, x, std::multiplies<double>()), tt = Sum(t, t, std::multiplies<double>());
         return -Sum(x, t, std::multiplies<double>()) / std::sqrt(xx * tt);
       }},
      {"kind: BINARY_FOCAL_CROSSENTROPY gamma: 1.5", bits,
       mean([](double x, double t) { return BinaryFocal(x, t, 1.5, 1); }), true},
      {"kind: BINARY_FOCAL_CROSSENTROPY from_logits: true apply_class_balancing: true alpha: 0.3", bits,
       mean([](double x, double t) { return BinaryFocal(1 / (1 + std::exp(-x)), t, 2, t * 0.3 + (1 - t) * 0.7); })},
      {"kind: CATEGORICAL_FOCAL_CROSSENTROPY",
       {1, 3},
       [](const Row& x, const Row& t) { return Focal(x, t, 0.25, 2); },
       true},
      {"kind: CATEGORICAL_FOCAL_CROSSENTROPY from_logits: true alpha: 0.5 gamma: 0.5", shares,
       [](const Row& x, const Row& t) { return Focal(Softmax(x), t, 0.5, 0.5); }},
      {"kind: DICE axis: 1", bits,
       [](const Row& x, const Row& t) {
         const double both = Sum(x, t, std::multiplies<double>()), all = Sum(x, t, std::plus<double>());
         return 1 - (2 * both + kEps) / (all + kEps);
       },
       true},
      {"kind: TVERSKY axis: 1 alpha: 0.3 beta: 0.7", bits,
       [](const Row& x, const Row& t) {
         const double both = Sum(x, t, std::multiplies<double>());
         const double fp = Sum(x, t, [](double p, double y) { return (1 - y) * p; });
         const double fn = Sum(x, t, [](double p, double y) { return y * (1 - p); });
         return 1 - (both + kEps) / (both + 0.3 * fp + 0.7 * fn + kEps);
       },
       true},
      {"kind: CATEGORICAL_GENERALIZED_CROSS_ENTROPY q: 0.7",
       {3, 1},
       [](const Row& x, const Row& t) { return (1 - std::pow(Sum(x, t, std::multiplies<double>()), 0.7)) / 0.7; },
       true},
  };
}

// A model whose output has the shape, so that PlanLoss knows the positions.
Graph GraphOf(const std::string& shape) {
  return Graph::Build(FromText<v1::Model>("layers { input { shape: [" + shape + "] } } layers { dense { units: " +
                                          shape.substr(shape.rfind(',') + 1) + " } }"))
      .value();
}

struct Result {
  absl::Status status;
  BatchSums sums;
  std::vector<double> gradients;
};

template <typename Real = double>
Result Compute(const v1::Loss& loss, const LossPlan& plan, int64_t examples, const std::vector<double>& outputs,
               const std::vector<float>& labels, int64_t label_size, const std::vector<v1::Metric>& metrics = {}) {
  const std::vector<Real> x(outputs.begin(), outputs.end());
  std::vector<Real> g(x.size(), Real(-99));
  Result r;
  r.status = LossAndMetrics<Real>(loss, plan, metrics, {examples, x, labels, label_size}, absl::MakeSpan(g), &r.sums);
  r.gradients.assign(g.begin(), g.end());
  return r;
}

class RowLossTest : public testing::TestWithParam<Case> {};

TEST_P(RowLossTest, IsTheFormulaAndTheGradientItsDerivative) {
  const Case& c = GetParam();
  const v1::Loss loss = FromText<v1::Loss>(c.text);
  const LossPlan plan = PlanLoss(GraphOf("4"), loss);
  const std::vector<double> x = c.probabilities ? std::vector<double>{0.1, 0.6, 0.2, 0.1, 0.3, 0.25, 0.4, 0.05}
                                                : std::vector<double>{0.7, -0.3, 1.9, 0.8, 0.1, 1.2, -2, 0.35};
  const int64_t label_size = static_cast<int64_t>(c.labels.size()) / 2;
  double want = 0;
  for (size_t e = 0; e < 2; ++e) {
    Row t(4);
    for (size_t i = 0; i < 4; ++i) t[i] = label_size == 1 ? (c.labels[e] == i ? 1 : 0) : c.labels[4 * e + i];
    want += c.formula({x.begin() + 4 * e, x.begin() + 4 * e + 4}, t);
  }
  const Result got = Compute(loss, plan, 2, x, c.labels, label_size);
  ASSERT_TRUE(got.status.ok()) << got.status;
  EXPECT_NEAR(got.sums.loss, want, 1e-7 * (1 + std::abs(want)));
  for (size_t i = 0; i < x.size(); ++i) {
    const auto at = [&](double shift) {
      std::vector<double> moved = x;
      moved[i] += shift;
      return Compute(loss, plan, 2, moved, c.labels, label_size).sums.loss;
    };
    EXPECT_NEAR(got.gradients[i], (at(1e-6) - at(-1e-6)) / 2e-6, 2e-6 * (1 + std::abs(got.gradients[i]))) << i;
  }
  const Result single = Compute<float>(loss, plan, 2, x, c.labels, label_size);
  EXPECT_NEAR(single.sums.loss, want, 1e-5 * (1 + std::abs(want)));
  for (size_t i = 0; i < x.size(); ++i)
    EXPECT_NEAR(single.gradients[i], got.gradients[i], 1e-5 * (1 + std::abs(got.gradients[i])));
}

INSTANTIATE_TEST_SUITE_P(All, RowLossTest, testing::ValuesIn(Cases()));

// ---- positions ----

// [2, 2, 3] is four rows of three: the mean of their losses, as one example each.
TEST(Positions, AreRowsWhoseLossesAreAveraged) {
  const Graph graph = GraphOf("2,2,3");
  std::vector<double> x;
  for (int i = 0; i < 24; ++i) x.push_back(0.11 * ((i * 7) % 13) + 0.05);
  const std::vector<float> classes = {0, 2, 1, 1, 2, 2, 0, 1};
  std::vector<float> numbers;
  for (int i = 0; i < 24; ++i) numbers.push_back(static_cast<float>((i * 5) % 7) / 8);
  const std::vector<v1::Metric> metrics = {FromText<v1::Metric>("kind: ACCURACY"),
                                           FromText<v1::Metric>("kind: MEAN_ABSOLUTE_ERROR")};
  for (const char* text :
       {"kind: SPARSE_CATEGORICAL_CROSSENTROPY from_logits: true", "kind: CATEGORICAL_CROSSENTROPY",
        "kind: MEAN_SQUARED_ERROR", "kind: BINARY_CROSSENTROPY from_logits: true", "kind: COSINE_SIMILARITY",
        "kind: SPARSE_CATEGORICAL_CROSSENTROPY from_logits: true label_smoothing: 0.1"}) {
    SCOPED_TRACE(text);
    const v1::Loss loss = FromText<v1::Loss>(text);
    const LossPlan plan = PlanLoss(graph, loss);
    EXPECT_EQ(plan.positions, 4);
    const bool of_classes = plan.softmax;
    const std::vector<float>& labels = of_classes ? classes : numbers;
    const Result got = Compute(loss, plan, 2, x, labels, of_classes ? 4 : 12, metrics);
    ASSERT_TRUE(got.status.ok()) << got.status;
    LossPlan single = plan;
    single.positions = single.metric_rows = 1;
    const Result rows = Compute(loss, single, 8, x, labels, of_classes ? 1 : 3, metrics);
    ASSERT_TRUE(rows.status.ok()) << rows.status;
    EXPECT_EQ(got.sums.examples, 2u);
    EXPECT_NEAR(got.sums.loss, rows.sums.loss / 4, 1e-12);
    for (size_t m = 0; m < metrics.size(); ++m) EXPECT_NEAR(got.sums.metrics[m], rows.sums.metrics[m] / 4, 1e-12);
    for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(got.gradients[i], rows.gradients[i] / 4, 1e-12);
  }
}

TEST(Positions, DiceTakesTheWholeExampleAndMetricsTakeRows) {
  const v1::Loss loss = FromText<v1::Loss>("kind: DICE axis: [1, 2, 3]");
  const LossPlan plan = PlanLoss(GraphOf("2,2,1"), loss);
  EXPECT_EQ(plan.positions, 1);
  EXPECT_EQ(plan.metric_rows, 4);
  const Result got = Compute(loss, plan, 1, {0.9, 0.2, 0.6, 0.4}, {1, 0, 0, 1}, 4,
                             {FromText<v1::Metric>("kind: BINARY_ACCURACY"), FromText<v1::Metric>("kind: BINARY_IOU")});
  ASSERT_TRUE(got.status.ok()) << got.status;
  EXPECT_NEAR(got.sums.loss, 1 - (2 * 1.3 + 1e-7) / (2.1 + 2 + 1e-7), 1e-12);
  EXPECT_NEAR(got.sums.metrics[0], 0.5, 1e-12);
  // Classes 0 and 1: in both, in the target, in the prediction.
  EXPECT_THAT(std::vector<double>(got.sums.metrics.begin() + 1, got.sums.metrics.end()),
              testing::ElementsAre(1, 1, 2, 2, 2, 2));
}

TEST(Positions, ClassWeightsAreOfPositions) {
  const v1::Loss loss = FromText<v1::Loss>("kind: SPARSE_CATEGORICAL_CROSSENTROPY from_logits: true");
  const std::vector<v1::ClassWeight> weights = {FromText<v1::ClassWeight>("class_id: 1 weight: 3")};
  const Graph graph = GraphOf("2,2");
  const std::vector<double> x = {1, 2, 0.5, -1};
  const LossPlan plain = PlanLoss(graph, loss), weighted = PlanLoss(graph, loss, weights);
  LossPlan row = plain;
  row.positions = row.metric_rows = 1;
  const double first = Compute(loss, row, 1, {1, 2}, {0}, 1).sums.loss;
  const double second = Compute(loss, row, 1, {0.5, -1}, {1}, 1).sums.loss;
  EXPECT_NEAR(Compute(loss, weighted, 1, x, {0, 1}, 2).sums.loss, (first + 3 * second) / 2, 1e-12);
}

// ---- weights, ignored classes ----

TEST(Weights, OfExamplesStandBehindTheLabels) {
  const v1::Loss loss = FromText<v1::Loss>("kind: MEAN_SQUARED_ERROR");
  const LossPlan plan = PlanLoss(GraphOf("2,1"), loss);
  const Result got = Compute(loss, plan, 2, {1, 2, 3, 4}, {0, 0, 0, 0, 0.5f, 4}, 2,
                             {FromText<v1::Metric>("kind: MEAN_SQUARED_ERROR")});
  ASSERT_TRUE(got.status.ok()) << got.status;
  EXPECT_NEAR(got.sums.loss, 0.5 * (1 + 4) / 2 + 4 * (9 + 16) / 2.0, 1e-6);
  EXPECT_NEAR(got.sums.metrics[0], (1 + 4) / 2.0 + (9 + 16) / 2.0, 1e-6) << "metrics are not weighted";
  EXPECT_THAT(got.gradients, testing::Pointwise(testing::DoubleNear(1e-6), {0.5, 1.0, 12.0, 16.0}));
}

TEST(Weights, IgnoredPositionsDoNotCount) {
  const v1::Loss loss = FromText<v1::Loss>("kind: SPARSE_CATEGORICAL_CROSSENTROPY from_logits: true ignore_class: 255");
  const LossPlan plan = PlanLoss(GraphOf("3,2"), loss);
  LossPlan row = plan;
  row.positions = row.metric_rows = 1;
  const v1::Loss whole = FromText<v1::Loss>("kind: SPARSE_CATEGORICAL_CROSSENTROPY from_logits: true");
  const Result got = Compute(loss, plan, 2, {1, 2, 5, 5, 0, 3, 7, 7, 8, 8, 9, 9}, {0, 255, 1, 255, 255, 255}, 3,
                             {FromText<v1::Metric>("kind: ACCURACY")});
  ASSERT_TRUE(got.status.ok()) << got.status;
  const Result a = Compute(whole, row, 1, {1, 2}, {0}, 1), b = Compute(whole, row, 1, {0, 3}, {1}, 1);
  EXPECT_NEAR(got.sums.loss, (a.sums.loss + b.sums.loss) / 2, 1e-6);
  EXPECT_NEAR(got.sums.metrics[0], 1.0 / 3, 1e-12) << "a label that is no class is never right";
  EXPECT_NEAR(got.gradients[0], a.gradients[0] / 2, 1e-6);
  for (size_t i : {2u, 3u, 6u, 7u, 8u, 9u, 10u, 11u}) EXPECT_EQ(got.gradients[i], 0) << i;
}

TEST(Targets, OutOfRangeAreRefused) {
  const auto refused = [](const std::string& text, const std::string& shape, std::vector<float> labels,
                          int64_t label_size, const std::string& says) {
    const v1::Loss loss = FromText<v1::Loss>(text);
    const Graph graph = GraphOf(shape);
    const LossPlan plan = PlanLoss(graph, loss);
    const int64_t outputs = NumElements(graph.output().output);
    const absl::Status status = CheckLabels(loss, plan, 1, outputs, labels, label_size);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(says));
  };
  refused("kind: HINGE", "2", {0.5f, 1}, 2, "label 0.5 of example 0 of the batch is not -1, 0 or 1");
  refused("kind: DICE axis: 1", "2", {2, 1}, 2, "not in [0, 1]");
  refused("kind: HUBER", "2", {NAN, 1}, 2, "not a finite number");
  refused("kind: SPARSE_CATEGORICAL_CROSSENTROPY", "2,3", {0, 3}, 2, "not one of the model's classes 0 .. 2");
  refused("kind: SPARSE_CATEGORICAL_CROSSENTROPY", "2,3", {0}, 1, "needs 2 (a class number for each position)");
  refused("kind: MEAN_SQUARED_ERROR", "2,3", {0}, 1, "needs 6 (one for each output of the model)");
}

}  // namespace
}  // namespace cairn
