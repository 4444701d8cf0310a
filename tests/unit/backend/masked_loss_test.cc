// Goal: of an output with masked steps the loss is Keras' sum_over_batch_size, written out again here: the mean over
// the steps of the batch that count, times its examples; gradients are its derivatives, and zero in masked steps, whose
// labels may be anything; metrics count the others alone; a batch without any has the loss 0.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "common/model/metric_sums.h"
#include "tests/unit/model/model_text.h"
#include "worker/backend/loss.h"

namespace cairn {
namespace {

using testing::Each;
using testing::ElementsAre;

constexpr int64_t kExamples = 2, kSteps = 3, kClasses = 4;
const std::vector<float> kMask = {1, 1, 0, 0, 1, 0};
const std::vector<float> kLabels = {2, 0, -7, 99, 3, 1};  // those of masked steps are no classes

std::vector<double> Outputs() {
  std::vector<double> p;
  for (int i = 0; i < kExamples * kSteps * kClasses; ++i) p.push_back(0.05 + 0.1 * ((i * 5) % 7));
  for (size_t row = 0; row < p.size(); row += kClasses) {
    const double sum = std::accumulate(p.begin() + row, p.begin() + row + kClasses, 0.0);
    for (size_t c = 0; c < kClasses; ++c) p[row + c] /= sum;
  }
  return p;
}

LossPlan PlanOf() {
  LossPlan plan;
  plan.softmax = true;
  plan.positions = plan.metric_rows = kSteps;
  return plan;
}

struct Result {
  BatchSums sums;
  std::vector<double> gradients;
};

Result Compute(const std::vector<double>& outputs, const std::vector<float>& labels, const std::vector<float>& mask,
               const std::string& fields = "", const std::vector<v1::Metric>& metrics = {}) {
  const v1::Loss loss = FromText<v1::Loss>("kind: SPARSE_CATEGORICAL_CROSSENTROPY " + fields);
  Result r{{}, std::vector<double>(outputs.size(), -99)};
  const absl::Status status = LossAndMetrics<double>(
      loss, PlanOf(), metrics, {kExamples, outputs, labels, kSteps, mask}, absl::MakeSpan(r.gradients), &r.sums);
  EXPECT_TRUE(status.ok()) << status;
  return r;
}

double Entropy(const std::vector<double>& p, int64_t row, int label) {
  const auto of = p.begin() + row * kClasses;
  return -std::log(of[label] / std::accumulate(of, of + kClasses, 0.0));
}

TEST(MaskedLoss, IsTheMeanOverTheStepsThatCount) {
  const std::vector<double> p = Outputs();
  const double want = kExamples * (Entropy(p, 0, 2) + Entropy(p, 1, 0) + Entropy(p, 4, 3)) / 3;
  const Result got = Compute(p, kLabels, kMask);
  EXPECT_NEAR(got.sums.loss, want, 1e-6);
  EXPECT_EQ(got.sums.examples, 2u);
  for (size_t i = 0; i < p.size(); ++i) {
    const auto at = [&](double shift) {
      std::vector<double> moved = p;
      moved[i] += shift;
      return Compute(moved, kLabels, kMask).sums.loss;
    };
    EXPECT_NEAR(got.gradients[i], (at(1e-6) - at(-1e-6)) / 2e-6, 1e-5) << i;
    if (kMask[i / kClasses] == 0) {
      EXPECT_EQ(got.gradients[i], 0) << i;
    }
  }
}

TEST(MaskedLoss, WeightsOfExamplesAndIgnoredClasses) {
  const std::vector<double> p = Outputs();
  std::vector<float> labels = kLabels;
  labels.insert(labels.end(), {0.5f, 3});
  EXPECT_NEAR(Compute(p, labels, kMask).sums.loss,
              kExamples * (0.5 * (Entropy(p, 0, 2) + Entropy(p, 1, 0)) + 3 * Entropy(p, 4, 3)) / 3, 1e-6);
  // An ignored class is masked too: the rest shares the weight.
  EXPECT_NEAR(Compute(p, kLabels, kMask, "ignore_class: 0").sums.loss,
              kExamples * (Entropy(p, 0, 2) + Entropy(p, 4, 3)) / 2, 1e-6);
}

TEST(MaskedLoss, IsZeroWithoutAnyStep) {
  std::vector<double> p = Outputs();
  p[0] = std::numeric_limits<double>::quiet_NaN();
  v1::Metric accuracy = FromText<v1::Metric>("kind: ACCURACY average: MICRO");
  const Result got = Compute(p, kLabels, std::vector<float>(kExamples * kSteps, 0.0f), "", {accuracy});
  EXPECT_EQ(got.sums.loss, 0);
  EXPECT_THAT(got.gradients, Each(0));
  EXPECT_THAT(got.sums.metrics, ElementsAre(0, 0));
  EXPECT_EQ(MetricFigure(accuracy, got.sums.metrics, got.sums.examples), 0);
}

// Several rows a step: [steps, rows, classes].
TEST(MaskedLoss, OfSeveralRowsAStep) {
  const std::vector<double> p = Outputs();
  const std::vector<float> labels = {1, 2, 3, 0, 1, 2};
  LossPlan plan = PlanOf();
  const v1::Loss loss = FromText<v1::Loss>("kind: SPARSE_CATEGORICAL_CROSSENTROPY");
  BatchSums sums;
  // One example of two steps, of three rows each; the second step is masked.
  plan.positions = plan.metric_rows = 6;
  const std::vector<float> mask = {1, 0};
  ASSERT_TRUE(LossAndMetrics<double>(loss, plan, {}, {1, p, labels, 6, mask}, {}, &sums).ok());
  EXPECT_NEAR(sums.loss, (Entropy(p, 0, 1) + Entropy(p, 1, 2) + Entropy(p, 2, 3)) / 3, 1e-6);
}

TEST(MaskedLoss, MetricsCountTheOtherStepsAlone) {
  const std::vector<double> p = Outputs();
  int right = 0;
  for (const int64_t row : {0, 1, 4}) {
    const auto of = p.begin() + row * kClasses;
    right += std::max_element(of, of + kClasses) - of == static_cast<int64_t>(kLabels[row]) ? 1 : 0;
  }
  const std::vector<v1::Metric> metrics = {FromText<v1::Metric>("kind: ACCURACY average: MICRO"),
                                           FromText<v1::Metric>("kind: MEAN_IOU num_classes: 4")};
  const Result got = Compute(p, kLabels, kMask, "", metrics);
  ASSERT_EQ(got.sums.metrics.size(), 14u);
  EXPECT_EQ(got.sums.metrics[0], right);
  EXPECT_EQ(got.sums.metrics[1], 3);
  EXPECT_EQ(MetricFigure(metrics[0], absl::MakeSpan(got.sums.metrics).subspan(0, 2), 2), right / 3.0);
  // The targets of MEAN_IOU: classes 2, 0 and 3 once each.
  EXPECT_THAT(absl::MakeSpan(got.sums.metrics).subspan(6, 4), ElementsAre(1, 0, 1, 1));
}

}  // namespace
}  // namespace cairn
