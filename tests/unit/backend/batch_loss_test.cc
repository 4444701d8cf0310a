// Goal: CTC is the sum over every alignment, enumerated here one by one, and CIRCLE is Keras' formula over all pairs,
// written out again; their gradients are the derivatives, in float64 and float32; weights of examples count; labels
// that are no sequence or no class are refused by name, and so are metrics, masks and outputs of another shape.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "common/model/loss_check.h"
#include "tests/unit/model/model_text.h"
#include "tests/unit/test_seed.h"
#include "worker/backend/loss.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;
using Numbers = std::vector<double>;

Graph GraphOf(const std::string& shape) {
  return Graph::Build(FromText<v1::Model>("layers { input { shape: [" + shape +
                                          "] } } layers { activation { activation: LINEAR } }"))
      .value();
}

struct Result {
  absl::Status status;
  BatchSums sums;
  Numbers gradients;
};

template <typename Real = double>
Result Compute(const std::string& text, const std::string& shape, const Numbers& x, const std::vector<float>& labels,
               int64_t examples, int64_t label_size) {
  const v1::Loss loss = FromText<v1::Loss>(text);
  const LossPlan plan = PlanLoss(GraphOf(shape), loss);
  const std::vector<Real> outputs(x.begin(), x.end());
  std::vector<Real> gradients(x.size(), Real(NAN));
  Result r;
  r.status =
      LossAndMetrics<Real>(loss, plan, {}, {examples, outputs, labels, label_size}, absl::MakeSpan(gradients), &r.sums);
  r.gradients.assign(gradients.begin(), gradients.end());
  return r;
}

Numbers Random(size_t count, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<double> normal;
  Numbers x(count);
  for (double& v : x) v = normal(rng);
  return x;
}

void ExpectDerivative(const std::string& text, const std::string& shape, const Numbers& x,
                      const std::vector<float>& labels, int64_t examples, int64_t label_size) {
  const Result got = Compute(text, shape, x, labels, examples, label_size);
  ASSERT_TRUE(got.status.ok()) << got.status;
  const Result single = Compute<float>(text, shape, x, labels, examples, label_size);
  EXPECT_NEAR(single.sums.loss, got.sums.loss, 1e-5 * (1 + std::abs(got.sums.loss)));
  for (size_t i = 0; i < x.size(); ++i) {
    const auto at = [&](double shift) {
      Numbers moved = x;
      moved[i] += shift;
      return Compute(text, shape, moved, labels, examples, label_size).sums.loss;
    };
    EXPECT_NEAR(got.gradients[i], (at(1e-6) - at(-1e-6)) / 2e-6, 1e-6 * (1 + std::abs(got.gradients[i]))) << i;
    EXPECT_NEAR(single.gradients[i], got.gradients[i], 1e-4 * (1 + std::abs(got.gradients[i]))) << i;
  }
}

// ---- CTC ----

// Of all sequences of classes those that become `labels` when repeated classes, then blanks, are left out.
double EveryAlignment(const Numbers& x, size_t steps, size_t classes, const std::vector<int>& labels) {
  std::vector<size_t> path(steps, 0);
  double sum = 0;
  for (;;) {
    std::vector<int> read;
    for (size_t t = 0; t < steps; ++t) {
      if (path[t] != 0 && (t == 0 || path[t] != path[t - 1])) read.push_back(static_cast<int>(path[t]));
    }
    if (read == labels) {
      double probability = 1;
      for (size_t t = 0; t < steps; ++t) {
        double total = 0;
        for (size_t k = 0; k < classes; ++k) total += std::exp(x[t * classes + k]);
        probability *= std::exp(x[t * classes + path[t]]) / total;
      }
      sum += probability;
    }
    size_t t = 0;
    while (t < steps && ++path[t] == classes) path[t++] = 0;
    if (t == steps) return -std::log(sum);
  }
}

TEST(Ctc, IsTheSumOverEveryAlignment) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(seed);
  const Numbers x = Random(5 * 3, seed);
  for (const std::vector<int>& labels :
       std::vector<std::vector<int>>{{}, {1}, {2, 1}, {1, 1}, {2, 2, 2}, {1, 2, 1}, {1, 2, 1, 2, 1}, {1, 1, 2}}) {
    std::vector<float> padded(labels.begin(), labels.end());
    padded.resize(6, 0);
    const Result got = Compute("kind: CTC", "5,3", x, padded, 1, 6);
    ASSERT_TRUE(got.status.ok()) << got.status;
    EXPECT_NEAR(got.sums.loss, EveryAlignment(x, 5, 3, labels), 1e-10) << labels.size();
  }
}

TEST(Ctc, ItsGradientIsTheDerivative) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(seed);
  ExpectDerivative("kind: CTC", "7,4", Random(3 * 7 * 4, seed), {1, 3, 3, 2, 0, 0, 0, 0, 0}, 3, 3);
}

TEST(Ctc, LargeLogitsStayFinite) {
  Numbers x = Random(6 * 3, 1);
  for (double& v : x) v *= 500;
  const Result got = Compute<float>("kind: CTC", "6,3", x, {1, 2, 1}, 1, 3);
  ASSERT_TRUE(got.status.ok()) << got.status;
  EXPECT_TRUE(std::isfinite(got.sums.loss));
  for (const double g : got.gradients) EXPECT_TRUE(std::isfinite(g));
}

TEST(Ctc, WeightsOfExamplesStandBehindTheLabels) {
  const Numbers x = Random(2 * 4 * 3, 2), first(x.begin(), x.begin() + 12), second(x.begin() + 12, x.end());
  const Result both = Compute("kind: CTC", "4,3", x, {1, 2, 2, 0, 0.5f, 3}, 2, 2);
  const Result a = Compute("kind: CTC", "4,3", first, {1, 2}, 1, 2);
  const Result b = Compute("kind: CTC", "4,3", second, {2, 0}, 1, 2);
  ASSERT_TRUE(both.status.ok()) << both.status;
  EXPECT_EQ(both.sums.examples, 2u);
  EXPECT_NEAR(both.sums.loss, 0.5 * a.sums.loss + 3 * b.sums.loss, 1e-9);
  EXPECT_NEAR(both.gradients[0], 0.5 * a.gradients[0], 1e-12);
  EXPECT_NEAR(both.gradients[20], 3 * b.gradients[8], 1e-12);
}

// ---- CIRCLE ----

Numbers UnitRows(size_t rows, size_t size, uint32_t seed) {
  Numbers x = Random(rows * size, seed);
  for (size_t r = 0; r < rows; ++r) {
    double squares = 0;
    for (size_t k = 0; k < size; ++k) squares += x[r * size + k] * x[r * size + k];
    for (size_t k = 0; k < size; ++k) x[r * size + k] /= std::sqrt(squares);
  }
  return x;
}

// Keras' circle, with its mask of examples of loss 0.
double Circle(const Numbers& x, size_t size, const std::vector<int>& classes, const Numbers& weights, double gamma,
              double margin, bool remove_diagonal) {
  const size_t n = classes.size();
  double sum = 0;
  int counted = 0;
  for (size_t i = 0; i < n; ++i) {
    double positive = 0, negative = 0;
    for (size_t j = 0; j < n; ++j) {
      double dot = 0;
      for (size_t k = 0; k < size; ++k) dot += x[i * size + k] * x[j * size + k];
      const double d = std::max(1 - dot, 0.0);
      if (classes[i] != classes[j]) {
        negative += std::exp(gamma * std::max(1 + margin - d, 0.0) * (1 - margin - d));
      } else if (i != j || !remove_diagonal) {
        positive += std::exp(-gamma * (margin + d) * (margin - d));
      }
    }
    const double loss = positive == 0 || negative == 0 ? 0 : std::log1p(positive * negative);
    counted += loss > 0 ? 1 : 0;
    sum += weights[i] * loss;
  }
  return counted == 0 ? 0 : sum * static_cast<double>(n) / counted;
}

TEST(CircleTest, IsKerasFormula) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(seed);
  const Numbers x = UnitRows(7, 3, seed);
  const std::vector<float> labels = {0, 1, 0, 5, 1, 0, 1};  // class 5 has no second example
  const std::vector<int> classes(labels.begin(), labels.end());
  const Numbers ones(7, 1.0);
  const auto expect = [&](const std::string& text, double gamma, double margin, bool remove_diagonal) {
    const Result got = Compute(text, "3", x, labels, 7, 1);
    ASSERT_TRUE(got.status.ok()) << got.status;
    const double want = Circle(x, 3, classes, ones, gamma, margin, remove_diagonal);
    EXPECT_NEAR(got.sums.loss, want, 1e-9 * (1 + want)) << text;
  };
  expect("kind: CIRCLE", 80, 0.4, true);
  expect("kind: CIRCLE gamma: 5 margin: 0.25", 5, 0.25, true);
  expect("kind: CIRCLE gamma: 5 remove_diagonal: false", 5, 0.4, false);
}

TEST(CircleTest, ItsGradientIsTheDerivative) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(seed);
  const std::vector<float> labels = {0, 1, 0, 5, 1, 0};
  ExpectDerivative("kind: CIRCLE gamma: 5 margin: 0.3", "3", UnitRows(6, 3, seed), labels, 6, 1);
}

TEST(CircleTest, WeightsOfExamplesCount) {
  const Numbers x = UnitRows(4, 3, 5);
  const Result got = Compute("kind: CIRCLE gamma: 5", "3", x, {0, 1, 0, 1, 2, 0.5f, 0, 1}, 4, 1);
  ASSERT_TRUE(got.status.ok()) << got.status;
  EXPECT_NEAR(got.sums.loss, Circle(x, 3, {0, 1, 0, 1}, {2, 0.5, 0, 1}, 5, 0.4, true), 1e-9);
}

// One class alone, or one example: nothing to compare with.
TEST(CircleTest, WithoutPairsItIsNothing) {
  for (const std::vector<float>& labels : std::vector<std::vector<float>>{{1, 1, 1}, {0, 1, 2}}) {
    const Result got = Compute("kind: CIRCLE", "3", UnitRows(3, 3, 6), labels, 3, 1);
    ASSERT_TRUE(got.status.ok()) << got.status;
    EXPECT_EQ(got.sums.loss, 0);
    for (const double g : got.gradients) EXPECT_EQ(g, 0);
  }
}

// A training that has diverged is seen by its loss: also where no distance is a number, and so no largest score is.
TEST(CircleTest, EmbeddingsThatAreNoNumbersHaveNoLoss) {
  const std::vector<float> labels = {0, 1, 0, 1};
  const Numbers x = UnitRows(4, 3, 7);
  for (const std::string& text : std::vector<std::string>{"kind: CIRCLE", "kind: CIRCLE remove_diagonal: false"}) {
    for (size_t row = 0; row < 4; ++row) {
      Numbers one = x;
      one[row * 3 + 1] = NAN;
      EXPECT_TRUE(std::isnan(Compute(text, "3", one, labels, 4, 1).sums.loss)) << text << ", row " << row;
    }
    const Numbers all(x.size(), NAN);
    EXPECT_TRUE(std::isnan(Compute(text, "3", all, labels, 4, 1).sums.loss)) << text;
    EXPECT_TRUE(std::isnan(Compute<float>(text, "3", all, labels, 4, 1).sums.loss)) << text;
  }
}

// ---- what is refused ----

TEST(BatchLoss, LabelsThatAreRefused) {
  const auto refused = [](const std::string& text, const std::string& shape, std::vector<float> labels,
                          const std::string& says) {
    const v1::Loss loss = FromText<v1::Loss>(text);
    const Graph graph = GraphOf(shape);
    const int64_t outputs = NumElements(graph.output().output);
    const absl::Status status =
        CheckLabels(loss, PlanLoss(graph, loss), 1, outputs, labels, static_cast<int64_t>(labels.size()));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(says));
  };
  refused("kind: CTC", "4,3", {1, 3}, "label 3 of example 0 of the batch is not one of the model's classes 1 .. 2");
  refused("kind: CTC", "4,3", {1.5f, 0}, "label 1.5 of example 0");
  refused("kind: CTC", "4,3", {NAN, 0}, "label nan of example 0");
  refused("kind: CTC", "4,3", {1, 0, 2}, "have a 2 behind a 0");
  refused("kind: CTC", "4,3", {1, 1, 1}, "the 3 labels of example 0 of the batch need 5 steps");
  refused("kind: CIRCLE", "3", {1.5f}, "label 1.5 of example 0 of the batch is not a class number");
  refused("kind: CIRCLE", "3", {1, 2}, "has 2 labels an example, but the loss needs a class number");
}

TEST(BatchLoss, JobsThatAreRefused) {
  const auto refused = [](const std::string& text, const std::string& shape, const std::string& says) {
    v1::Loss loss = FromText<v1::Loss>(text);
    EXPECT_THAT(std::string(CheckLoss(&loss, GraphOf(shape)).message()), HasSubstr(says));
  };
  refused("kind: CTC", "4", "loss.kind: CTC takes outputs of [steps, classes], but layer \"activation\" gives [4]");
  refused("kind: CTC", "4,1", "loss.kind: CTC needs a blank and at least one class");
  refused("kind: CTC margin: 0.5", "4,2", "loss.margin: only for CIRCLE, not CTC");
  refused("kind: CTC gamma: 2", "4,2", "loss.gamma: only for");
  refused("kind: CIRCLE", "4,2", "loss.kind: CIRCLE takes outputs of [numbers of an embedding]");
  refused("kind: CIRCLE margin: 2", "4", "loss.margin: 2 is outside [0, 1]; use 0.4");
  refused("kind: HUBER remove_diagonal: true", "4", "loss.remove_diagonal: only for CIRCLE, not HUBER");
  EXPECT_THAT(std::string(CheckMetricsBeside(v1::Loss::CTC, 1).message()), HasSubstr("no metric compares"));
  EXPECT_TRUE(CheckMetricsBeside(v1::Loss::CTC, 0).ok());
  EXPECT_TRUE(CheckMetricsBeside(v1::Loss::HUBER, 1).ok());
}

}  // namespace
}  // namespace cairn
