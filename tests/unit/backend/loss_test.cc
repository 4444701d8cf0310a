// Goal: losses are Keras' formulas and their gradients the derivatives, in float64 and float32; metrics count
// correctly; extreme outputs stay finite; labels out of range are refused.
#include "worker/backend/loss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

struct Result {
  BatchSums sums;
  std::vector<double> gradients;
};

LossPlan PlanOf(const v1::Loss& loss, bool fused) {
  return {.fused = fused,
          .softmax = loss.kind() == v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY ||
                     loss.kind() == v1::Loss::CATEGORICAL_CROSSENTROPY};
}

template <typename Real = double>
absl::StatusOr<Result> Compute(const std::string& loss_text, bool fused, const std::vector<double>& outputs,
                               const std::vector<float>& labels, int64_t examples,
                               const std::vector<std::string>& metrics_text = {}) {
  const v1::Loss loss = FromText<v1::Loss>(loss_text);
  std::vector<v1::Metric> metrics;
  for (const std::string& m : metrics_text) metrics.push_back(FromText<v1::Metric>(m));
  const std::vector<Real> x(outputs.begin(), outputs.end());
  std::vector<Real> g(x.size(), Real(-99));
  Result result;
  const absl::Status status = LossAndMetrics<Real>(
      loss, PlanOf(loss, fused), metrics, {examples, x, labels, static_cast<int64_t>(labels.size()) / examples},
      absl::MakeSpan(g), &result.sums);
  if (!status.ok()) return status;
  result.gradients.assign(g.begin(), g.end());
  return result;
}

double LossOf(const std::string& loss, bool fused, const std::vector<double>& outputs, const std::vector<float>& labels,
              int64_t examples) {
  return Compute(loss, fused, outputs, labels, examples).value().sums.loss;
}

// ---- values ----

TEST(Loss, SparseCategorical) {
  // keras.losses' own example: y = [1, 2], p = [[0.05, 0.95, 0], [0.1, 0.8, 0.1]] gives 0.0513, 2.303.
  const std::vector<double> p = {0.05, 0.95, 0, 0.1, 0.8, 0.1};
  EXPECT_NEAR(LossOf("kind: SPARSE_CATEGORICAL_CROSSENTROPY", false, p, {1, 2}, 2), 0.05129329 + 2.30258509, 1e-6);
  const std::vector<double> logits = {1, 2, 3};
  const double log_sum = std::log(std::exp(1) + std::exp(2) + std::exp(3));
  EXPECT_NEAR(LossOf("kind: SPARSE_CATEGORICAL_CROSSENTROPY from_logits: true", false, logits, {0}, 1), log_sum - 1,
              1e-12);
  EXPECT_NEAR(LossOf("kind: SPARSE_CATEGORICAL_CROSSENTROPY", true, logits, {2}, 1), log_sum - 3, 1e-12);
}

TEST(Loss, Categorical) {
  const std::vector<double> p = {0.05, 0.95, 0, 0.1, 0.8, 0.1};
  EXPECT_NEAR(LossOf("kind: CATEGORICAL_CROSSENTROPY", false, p, {0, 1, 0, 0, 0, 1}, 2), 0.05129329 + 2.30258509, 1e-6);
  EXPECT_NEAR(LossOf("kind: CATEGORICAL_CROSSENTROPY", false, p, {1, 2}, 2), 0.05129329 + 2.30258509, 1e-6)
      << "class numbers are expanded";
  // Probabilities whose sum is not 1 are divided by their sum first.
  EXPECT_NEAR(LossOf("kind: CATEGORICAL_CROSSENTROPY", false, {1, 3}, {0.5f, 0.5f}, 1),
              -0.5 * std::log(0.25) - 0.5 * std::log(0.75), 1e-12);
  const double log_sum = std::log(std::exp(1) + std::exp(3));
  EXPECT_NEAR(LossOf("kind: CATEGORICAL_CROSSENTROPY", true, {1, 3}, {0.25f, 0.75f}, 1),
              0.25 * (log_sum - 1) + 0.75 * (log_sum - 3), 1e-12);
}

TEST(Loss, Binary) {
  // keras.losses.BinaryCrossentropy's example from logits: 0.865 is the mean over these four.
  EXPECT_NEAR(LossOf("kind: BINARY_CROSSENTROPY from_logits: true", false, {-18.6, 0.51, 2.94, -12.8}, {0, 1, 0, 0}, 1),
              0.865458, 1e-5);
  EXPECT_NEAR(LossOf("kind: BINARY_CROSSENTROPY", false, {0.6, 0.3}, {1, 0}, 2), -std::log(0.6) - std::log(0.7), 1e-12);
  EXPECT_NEAR(LossOf("kind: BINARY_CROSSENTROPY", true, {0.3}, {1}, 1), std::log1p(std::exp(-0.3)), 1e-12);
}

TEST(Loss, MeanSquared) {
  EXPECT_NEAR(LossOf("kind: MEAN_SQUARED_ERROR", false, {1, 2, 3, 5}, {0, 4, 3, 3}, 2), (1 + 4) / 2.0 + 4 / 2.0, 1e-12);
}

TEST(Loss, ProbabilitiesAreClipped) {
  const double worst = -std::log(1e-7);
  EXPECT_NEAR(LossOf("kind: SPARSE_CATEGORICAL_CROSSENTROPY", false, {0, 1}, {0}, 1), worst, 1e-6);
  EXPECT_NEAR(LossOf("kind: CATEGORICAL_CROSSENTROPY", false, {0, 1}, {1, 0}, 1), worst, 1e-6);
  EXPECT_NEAR(LossOf("kind: BINARY_CROSSENTROPY", false, {0}, {1}, 1), worst, 1e-6);
  EXPECT_NEAR(LossOf("kind: BINARY_CROSSENTROPY", false, {1}, {1}, 1), 0, 1e-6);
}

TEST(Loss, LargeLogitsStayFinite) {
  for (const double scale : {1e3, 1e4}) {
    EXPECT_NEAR(LossOf("kind: SPARSE_CATEGORICAL_CROSSENTROPY", true, {scale, -scale}, {1}, 1), 2 * scale,
                1e-9 * scale);
    const Result sparse =
        Compute<float>("kind: SPARSE_CATEGORICAL_CROSSENTROPY", true, {scale, -scale}, {1}, 1).value();
    EXPECT_FLOAT_EQ(sparse.gradients[0], 1);
    EXPECT_FLOAT_EQ(sparse.gradients[1], -1);
    const Result binary = Compute<float>("kind: BINARY_CROSSENTROPY", true, {scale, -scale}, {0, 1}, 1).value();
    EXPECT_FLOAT_EQ(binary.sums.loss, scale);
    EXPECT_FLOAT_EQ(binary.gradients[0], 0.5);
    EXPECT_FLOAT_EQ(binary.gradients[1], -0.5);
  }
}

// ---- gradients ----

struct GradientCase {
  std::string loss;
  bool fused;
  std::vector<double> outputs;
  std::vector<float> labels;
};

TEST(Loss, GradientsAreDerivatives) {
  const std::vector<double> probabilities = {0.2, 0.5, 0.3, 0.7, 0.1, 0.2}, any = {0.2, -0.5, 1.3, -0.7, 2.1, 0.4};
  const std::vector<float> classes = {1, 0}, distributions = {0.1f, 0.7f, 0.2f, 0, 1, 0};
  const std::vector<GradientCase> cases = {
      {"kind: SPARSE_CATEGORICAL_CROSSENTROPY", false, probabilities, classes},
      {"kind: SPARSE_CATEGORICAL_CROSSENTROPY", true, any, classes},
      {"kind: SPARSE_CATEGORICAL_CROSSENTROPY from_logits: true", false, any, classes},
      {"kind: CATEGORICAL_CROSSENTROPY", false, probabilities, distributions},
      {"kind: CATEGORICAL_CROSSENTROPY", false, {0.2, 0.9, 1.3, 0.7, 2.1, 0.4}, distributions},  // sums that are not 1
      {"kind: CATEGORICAL_CROSSENTROPY", true, any, distributions},
      {"kind: CATEGORICAL_CROSSENTROPY", true, any, classes},
      {"kind: BINARY_CROSSENTROPY", false, probabilities, distributions},
      {"kind: BINARY_CROSSENTROPY", true, any, distributions},
      {"kind: BINARY_CROSSENTROPY from_logits: true", false, any, distributions},
      {"kind: MEAN_SQUARED_ERROR", false, any, distributions},
  };
  for (const GradientCase& c : cases) {
    SCOPED_TRACE(c.loss + (c.fused ? " fused" : ""));
    const Result exact = Compute(c.loss, c.fused, c.outputs, c.labels, 2).value();
    const Result rounded = Compute<float>(c.loss, c.fused, c.outputs, c.labels, 2).value();
    EXPECT_NEAR(rounded.sums.loss, exact.sums.loss, 1e-5);
    for (size_t i = 0; i < c.outputs.size(); ++i) {
      const auto at = [&](double shift) {
        std::vector<double> x = c.outputs;
        x[i] += shift;
        return LossOf(c.loss, c.fused, x, c.labels, 2);
      };
      const double expected = (at(1e-5) - at(-1e-5)) / 2e-5;
      EXPECT_NEAR(exact.gradients[i], expected, 1e-8 + 1e-6 * std::abs(expected)) << i;
      EXPECT_NEAR(rounded.gradients[i], expected, 1e-5) << i;
    }
  }
}

TEST(Loss, AClippedProbabilityHasNoGradient) {
  EXPECT_EQ(Compute("kind: BINARY_CROSSENTROPY", false, {0}, {1}, 1).value().gradients[0], 0);
  EXPECT_EQ(Compute("kind: CATEGORICAL_CROSSENTROPY", false, {0, 1}, {1, 0}, 1).value().gradients[0], 0);
}

// ---- metrics ----

std::vector<double> MetricsOf(const std::string& loss, bool fused, const std::vector<double>& outputs,
                              const std::vector<float>& labels, int64_t examples,
                              const std::vector<std::string>& metrics) {
  return Compute(loss, fused, outputs, labels, examples, metrics).value().sums.metrics;
}

TEST(Metrics, Classes) {
  const std::vector<double> p = {0.1, 0.2, 0.7, 0.5, 0.3, 0.2, 0.2, 0.5, 0.3};
  const std::vector<std::string> metrics = {"kind: ACCURACY", "kind: TOP_K_ACCURACY k: 1", "kind: TOP_K_ACCURACY k: 2",
                                            "kind: TOP_K_ACCURACY k: 3"};
  using testing::ElementsAre;
  EXPECT_THAT(MetricsOf("kind: SPARSE_CATEGORICAL_CROSSENTROPY", false, p, {2, 2, 2}, 3, metrics),
              ElementsAre(1, 1, 2, 3));
  EXPECT_THAT(MetricsOf("kind: SPARSE_CATEGORICAL_CROSSENTROPY", true, p, {2, 0, 1}, 3, metrics),
              ElementsAre(3, 3, 3, 3));
  EXPECT_THAT(MetricsOf("kind: CATEGORICAL_CROSSENTROPY", true, p, {0, 0, 1, 0, 1, 0, 1, 0, 0}, 3, metrics),
              ElementsAre(1, 1, 2, 3));
}

TEST(Metrics, BinaryComparesProbabilitiesWithAHalf) {
  using testing::ElementsAre;
  EXPECT_THAT(MetricsOf("kind: BINARY_CROSSENTROPY", false, {0.6, 0.4, 0.9, 0.2}, {1, 1, 0, 0}, 2, {"kind: ACCURACY"}),
              ElementsAre(0.5 + 0.5));
  EXPECT_THAT(MetricsOf("kind: BINARY_CROSSENTROPY", true, {0.1, -0.1}, {1, 0}, 2, {"kind: ACCURACY"}), ElementsAre(2));
  EXPECT_THAT(
      MetricsOf("kind: BINARY_CROSSENTROPY from_logits: true", false, {0.1, -0.1}, {1, 1}, 2, {"kind: ACCURACY"}),
      ElementsAre(1));
}

TEST(Metrics, ErrorsAreOfThePredictions) {
  const std::vector<std::string> metrics = {"kind: MEAN_ABSOLUTE_ERROR", "kind: ROOT_MEAN_SQUARED_ERROR"};
  const std::vector<double> plain =
      MetricsOf("kind: MEAN_SQUARED_ERROR", false, {1, 2, 3, 5}, {0, 4, 3, 3}, 2, metrics);
  EXPECT_THAT(plain, testing::ElementsAre(1.5 + 1, 2.5 + 2));
  const std::vector<double> fused = MetricsOf("kind: BINARY_CROSSENTROPY", true, {0}, {1}, 1, metrics);
  EXPECT_THAT(fused, testing::ElementsAre(0.5, 0.25));
  const std::vector<double> softmax = MetricsOf("kind: SPARSE_CATEGORICAL_CROSSENTROPY", true, {3, 3}, {1}, 1, metrics);
  EXPECT_THAT(softmax, testing::ElementsAre(0.5, 0.25));
}

TEST(Metrics, NotANumberIsNeverRight) {
  const double nan = std::nan("");
  EXPECT_THAT(
      MetricsOf("kind: SPARSE_CATEGORICAL_CROSSENTROPY", true, {nan, nan, nan}, {1}, 1, {"kind: TOP_K_ACCURACY k: 1"}),
      testing::ElementsAre(0));
  EXPECT_TRUE(std::isnan(LossOf("kind: SPARSE_CATEGORICAL_CROSSENTROPY", true, {nan, 1}, {1}, 1)));
}

// ---- bad labels ----

TEST(Loss, BadLabelsAreRefused) {
  const auto message = [](const std::string& loss, const std::vector<double>& outputs, const std::vector<float>& labels,
                          int64_t examples) {
    const absl::StatusOr<Result> result = Compute(loss, false, outputs, labels, examples);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(result.status().message());
  };
  const std::string sparse = "kind: SPARSE_CATEGORICAL_CROSSENTROPY";
  EXPECT_EQ(message(sparse, {0.5, 0.5, 0.5, 0.5}, {1, 2}, 2),
            "label 2 of example 1 of the batch is not one of the model's classes 0 .. 1; give the last layer more "
            "units or correct the data");
  for (float label : {-1.0f, 0.5f, 1e30f, std::nanf(""), INFINITY}) {
    EXPECT_THAT(message(sparse, {0.5, 0.5}, {label}, 1), testing::HasSubstr("is not one of the model's classes"));
  }
  EXPECT_THAT(message("kind: CATEGORICAL_CROSSENTROPY", {0.5, 0.5}, {3}, 1), testing::HasSubstr("classes 0 .. 1"));
  EXPECT_THAT(message("kind: CATEGORICAL_CROSSENTROPY", {0.5, 0.5}, {-1, 2}, 1),
              testing::HasSubstr("is not in [0, 1]"));
  EXPECT_THAT(message("kind: BINARY_CROSSENTROPY", {0.5}, {2}, 1),
              testing::HasSubstr("label 2 of example 0 of the batch is not in [0, 1]"));
  EXPECT_THAT(message("kind: MEAN_SQUARED_ERROR", {0.5}, {INFINITY}, 1), testing::HasSubstr("is not a finite number"));
  EXPECT_EQ(message("kind: MEAN_SQUARED_ERROR", {0.5, 0.5}, {1}, 1),
            "the data has 1 labels an example, but the loss needs 2 (one for each output of the model); choose another "
            "loss or number of "
            "units");
  EXPECT_THAT(message(sparse, {0.5, 0.5}, {1, 0}, 1),
              testing::HasSubstr("2 labels an example, but the loss needs 1 (a class number)"));
}

TEST(Loss, NoExamples) {
  BatchSums sums;
  sums.loss = 5;
  const v1::Loss loss = FromText<v1::Loss>("kind: MEAN_SQUARED_ERROR");
  EXPECT_TRUE(LossAndMetrics<float>(loss, {}, {}, {}, {}, &sums).ok());
  EXPECT_EQ(sums.loss, 0);
  EXPECT_EQ(sums.examples, 0u);
}

// ---- the plan ----

// ---- label smoothing and class weights ----

double Log(double x) { return std::log(x); }

// keras.losses: y (1 - s) + s / classes; binary y (1 - s) + s / 2.
TEST(LabelSmoothing, IsKerasFormula) {
  const std::vector<double> p = {0.2, 0.5, 0.3};
  const double share = 0.3 / 3, own = 0.7 + share;  // of label 1
  const double expected = -share * Log(0.2) - own * Log(0.5) - share * Log(0.3);
  const std::string s = " label_smoothing: 0.3";
  EXPECT_NEAR(LossOf("kind: CATEGORICAL_CROSSENTROPY" + s, false, p, {0, 1, 0}, 1), expected, 1e-6);
  EXPECT_NEAR(LossOf("kind: CATEGORICAL_CROSSENTROPY" + s, false, p, {1}, 1), expected, 1e-6) << "a class number";
  EXPECT_NEAR(LossOf("kind: SPARSE_CATEGORICAL_CROSSENTROPY" + s, false, p, {1}, 1), expected, 1e-6) << "by expansion";
  const std::vector<double> logits = {Log(0.2), Log(0.5), Log(0.3)};
  EXPECT_NEAR(LossOf("kind: SPARSE_CATEGORICAL_CROSSENTROPY" + s, true, logits, {1}, 1), expected, 1e-6);
  EXPECT_NEAR(LossOf("kind: SPARSE_CATEGORICAL_CROSSENTROPY from_logits: true" + s, false, logits, {1}, 1), expected,
              1e-6);
  EXPECT_NEAR(LossOf("kind: BINARY_CROSSENTROPY" + s, false, {0.6}, {1}, 1), -0.85 * Log(0.6) - 0.15 * Log(0.4), 1e-6);
  EXPECT_NEAR(LossOf("kind: BINARY_CROSSENTROPY" + s, true, {Log(0.6 / 0.4)}, {0}, 1),
              -0.15 * Log(0.6) - 0.85 * Log(0.4), 1e-6);
}

TEST(LabelSmoothing, GradientsAreDerivatives) {
  const std::vector<double> probabilities = {0.2, 0.5, 0.3, 0.7, 0.1, 0.2}, any = {0.2, -0.5, 1.3, -0.7, 2.1, 0.4};
  const std::vector<float> classes = {1, 0}, distributions = {0.1f, 0.7f, 0.2f, 0, 1, 0};
  const std::string s = " label_smoothing: 0.2";
  const std::vector<GradientCase> cases = {
      {"kind: SPARSE_CATEGORICAL_CROSSENTROPY" + s, false, probabilities, classes},
      {"kind: SPARSE_CATEGORICAL_CROSSENTROPY" + s, true, any, classes},
      {"kind: CATEGORICAL_CROSSENTROPY" + s, false, probabilities, distributions},
      {"kind: CATEGORICAL_CROSSENTROPY" + s, true, any, classes},
      {"kind: BINARY_CROSSENTROPY" + s, false, probabilities, distributions},
      {"kind: BINARY_CROSSENTROPY" + s, true, any, distributions},
  };
  for (const GradientCase& c : cases) {
    SCOPED_TRACE(c.loss);
    const Result exact = Compute(c.loss, c.fused, c.outputs, c.labels, 2).value();
    for (size_t i = 0; i < c.outputs.size(); ++i) {
      const auto at = [&](double shift) {
        std::vector<double> x = c.outputs;
        x[i] += shift;
        return LossOf(c.loss, c.fused, x, c.labels, 2);
      };
      EXPECT_NEAR(exact.gradients[i], (at(1e-5) - at(-1e-5)) / 2e-5, 1e-7) << i;
    }
  }
}

TEST(LabelSmoothing, MetricsSeeTheLabels) {
  const std::vector<std::string> metrics = {"kind: ACCURACY", "kind: MEAN_ABSOLUTE_ERROR"};
  const Result plain = Compute("kind: BINARY_CROSSENTROPY", false, {0.6, 0.3}, {1, 1}, 2, metrics).value();
  const Result smooth =
      Compute("kind: BINARY_CROSSENTROPY label_smoothing: 0.5", false, {0.6, 0.3}, {1, 1}, 2, metrics).value();
  EXPECT_EQ(smooth.sums.metrics, plain.sums.metrics);
}

// Two layers behind an input, so that PlanLoss has a graph.
Graph GraphOf(const std::string& last) {
  return Graph::Build(FromText<v1::Model>("layers { input { shape: 3 } } layers { dense { " + last + " } }")).value();
}

// keras.Model.fit: an example's loss times the weight of its class, the sum divided by the number of examples (not of
// weights); metrics are not weighted.
TEST(ClassWeights, WeighLossAndGradientOfTrainingAlone) {
  struct Case {
    std::string loss, last;
    int64_t outputs;
    std::vector<float> labels;
    std::vector<double> weights;  // that the examples get
  };
  const std::vector<Case> cases = {
      {"kind: SPARSE_CATEGORICAL_CROSSENTROPY", "units: 3 activation: SOFTMAX", 3, {1, 0, 2, 1}, {2.5, 1, 0, 2.5}},
      {"kind: SPARSE_CATEGORICAL_CROSSENTROPY label_smoothing: 0.1",
       "units: 3 activation: SOFTMAX",
       3,
       {1, 0, 2, 1},
       {2.5, 1, 0, 2.5}},
      {"kind: CATEGORICAL_CROSSENTROPY from_logits: true",
       "units: 3",
       3,
       {0, 1, 0, .6f, .3f, .1f, 0, .4f, .6f, 0, 1, 0},
       {2.5, 1, 0, 2.5}},
      {"kind: BINARY_CROSSENTROPY", "units: 1 activation: SIGMOID", 1, {1, 0, 0, 1}, {2.5, 1, 1, 2.5}},
  };
  const std::vector<v1::ClassWeight> given = {FromText<v1::ClassWeight>("class_id: 1 weight: 2.5"),
                                              FromText<v1::ClassWeight>("class_id: 2 weight: 0")};
  const std::vector<v1::Metric> metrics = {FromText<v1::Metric>("kind: ACCURACY")};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.loss);
    const v1::Loss loss = FromText<v1::Loss>(c.loss);
    const Graph graph = GraphOf(c.last);
    const LossPlan plain = PlanLoss(graph, loss), weighted = PlanLoss(graph, loss, given);
    std::vector<double> x;
    for (int64_t i = 0; i < 4 * c.outputs; ++i) x.push_back(0.4 * static_cast<double>(i % 5) - 0.7);
    const int64_t label_size = static_cast<int64_t>(c.labels.size()) / 4;
    const auto run = [&](const LossPlan& plan, const std::vector<double>& at, int64_t first, int64_t n, bool training) {
      Result result;
      result.gradients.assign(training ? n * c.outputs : 0, 0);
      const absl::Status status =
          LossAndMetrics<double>(loss, plan, metrics,
                                 {.examples = n,
                                  .outputs = absl::MakeSpan(at).subspan(first * c.outputs, n * c.outputs),
                                  .labels = absl::MakeSpan(c.labels).subspan(first * label_size, n * label_size),
                                  .label_size = label_size},
                                 absl::MakeSpan(result.gradients), &result.sums);
      EXPECT_TRUE(status.ok()) << status;
      return result;
    };
    const Result all = run(weighted, x, 0, 4, true);
    double expected = 0;
    for (int64_t e = 0; e < 4; ++e) {
      const Result one = run(plain, x, e, 1, true);
      expected += c.weights[e] * one.sums.loss;
      for (int64_t j = 0; j < c.outputs; ++j) {
        EXPECT_NEAR(all.gradients[e * c.outputs + j], c.weights[e] * one.gradients[j], 1e-12) << e << " " << j;
      }
    }
    EXPECT_NEAR(all.sums.loss, expected, 1e-12);
    EXPECT_EQ(all.sums.examples, 4u);
    EXPECT_EQ(all.sums.metrics, run(plain, x, 0, 4, true).sums.metrics);
    EXPECT_EQ(run(weighted, x, 0, 4, false).sums.loss, run(plain, x, 0, 4, false).sums.loss) << "evaluation";
    for (size_t i = 0; i < x.size(); ++i) {
      const auto at = [&](double shift) {
        std::vector<double> moved = x;
        moved[i] += shift;
        return run(weighted, moved, 0, 4, true).sums.loss;
      };
      EXPECT_NEAR(all.gradients[i], (at(1e-5) - at(-1e-5)) / 2e-5, 1e-7) << i;
    }
  }
}

TEST(PlanLoss, FusesOnlyTheMatchingActivation) {
  const auto plan = [](const std::string& activation, const std::string& loss) {
    const std::string model =
        "layers { input { shape: 3 } } layers { dense { units: 2 activation: " + activation + " } }";
    return PlanLoss(Graph::Build(FromText<v1::Model>(model)).value(), FromText<v1::Loss>(loss));
  };
  EXPECT_TRUE(plan("SOFTMAX", "kind: SPARSE_CATEGORICAL_CROSSENTROPY").fused);
  EXPECT_TRUE(plan("SOFTMAX", "kind: CATEGORICAL_CROSSENTROPY").fused);
  EXPECT_TRUE(plan("SIGMOID", "kind: BINARY_CROSSENTROPY").fused);
  EXPECT_FALSE(plan("SIGMOID", "kind: CATEGORICAL_CROSSENTROPY").fused);
  EXPECT_FALSE(plan("SOFTMAX", "kind: BINARY_CROSSENTROPY").fused);
  EXPECT_FALSE(plan("SOFTMAX", "kind: CATEGORICAL_CROSSENTROPY from_logits: true").fused);
  EXPECT_FALSE(plan("SIGMOID", "kind: MEAN_SQUARED_ERROR").fused);
  EXPECT_TRUE(plan("LINEAR", "kind: CATEGORICAL_CROSSENTROPY").softmax);
  EXPECT_FALSE(plan("LINEAR", "kind: BINARY_CROSSENTROPY").softmax);
}

}  // namespace
}  // namespace cairn
