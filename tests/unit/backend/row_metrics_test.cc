// Goal: each metric that is not a mean is Keras' figure, computed here in the simplest way from all outputs at once
// (threshold by threshold, class by class); sums over parts of the examples add up to the figure of all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "common/model/job_check.h"
#include "common/model/metric_sums.h"
#include "tests/unit/model/model_text.h"
#include "tests/unit/test_seed.h"
#include "worker/backend/loss.h"

namespace cairn {
namespace {

constexpr double kEps = 1e-7;

struct Data {
  int64_t examples = 0, outputs = 0;
  std::vector<double> p;      // [examples, outputs]
  std::vector<float> labels;  // [examples, outputs]
  std::vector<int> truth;     // class
};

Data Make(uint32_t seed, int64_t examples, int64_t outputs) {
  std::mt19937 rng(seed);
  std::uniform_real_distribution<double> uniform(0.02, 0.98);
  Data d{examples, outputs, {}, std::vector<float>(examples * outputs), {}};
  for (int64_t i = 0; i < examples * outputs; ++i) d.p.push_back(uniform(rng));
  for (int64_t e = 0; e < examples; ++e) {
    d.truth.push_back(static_cast<int>(rng() % std::max<int64_t>(outputs, 2)));
    if (outputs == 1) {
      d.labels[e] = static_cast<float>(d.truth[e]);
    } else {
      d.labels[e * outputs + d.truth[e]] = 1;
    }
  }
  return d;
}

// The figure of the examples, added up from three parts.
double Figure(const std::string& text, const Data& d) {
  v1::JobSpec spec;
  *spec.add_metrics() = FromText<v1::Metric>(text);
  const v1::Loss loss = FromText<v1::Loss>(d.outputs == 1 ? "kind: BINARY_CROSSENTROPY" : "kind: MEAN_SQUARED_ERROR");
  LossPlan plan;
  const std::vector<v1::Metric> metrics = {spec.metrics(0)};
  v1::MetricSums total;
  total.mutable_metrics()->Resize(MetricSumCount(spec), 0);
  for (int64_t begin = 0, part = 0; begin < d.examples; ++part) {
    const int64_t n = std::min<int64_t>(part == 0 ? 3 : part == 1 ? 1 : d.examples, d.examples - begin);
    BatchSums sums;
    const absl::Status status =
        LossAndMetrics<double>(loss, plan, metrics,
                               {.examples = n,
                                .outputs = absl::MakeSpan(d.p).subspan(begin * d.outputs, n * d.outputs),
                                .labels = absl::MakeSpan(d.labels).subspan(begin * d.outputs, n * d.outputs),
                                .label_size = d.outputs},
                               {}, &sums);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(static_cast<int>(sums.metrics.size()), MetricSumCount(spec));
    for (size_t i = 0; i < sums.metrics.size(); ++i)
      total.set_metrics(static_cast<int>(i), total.metrics(static_cast<int>(i)) + sums.metrics[i]);
    total.set_examples(total.examples() + sums.examples);
    begin += n;
  }
  return MetricValue(spec, 0, total);
}

struct Counts {
  double tp = 0, fp = 0, tn = 0, fn = 0;
  double recall() const { return tp + fn == 0 ? 0 : tp / (tp + fn); }
  double precision() const { return tp + fp == 0 ? 0 : tp / (tp + fp); }
  double fpr() const { return fp + tn == 0 ? 0 : fp / (fp + tn); }
  double specificity() const { return fp + tn == 0 ? 0 : tn / (fp + tn); }
};
Counts At(const Data& d, double threshold, int column = -1) {
  Counts c;
  for (size_t i = 0; i < d.p.size(); ++i) {
    if (column >= 0 && static_cast<int64_t>(i) % d.outputs != column) continue;
    const bool positive = d.p[i] > threshold, truth = d.labels[i] != 0;
    (truth ? (positive ? c.tp : c.fn) : (positive ? c.fp : c.tn)) += 1;
  }
  return c;
}
std::vector<Counts> AtAll(const Data& d, int thresholds) {
  std::vector<Counts> all;
  for (int i = 0; i < thresholds; ++i) {
    const double at = i == 0 ? -kEps : i + 1 == thresholds ? 1 + kEps : static_cast<double>(i) / (thresholds - 1);
    all.push_back(At(d, at));
  }
  return all;
}

TEST(Metrics, CountsPrecisionAndRecall) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(seed);
  for (int64_t outputs : {1, 3}) {
    const Data d = Make(seed, 40, outputs);
    const Counts c = At(d, 0.5), low = At(d, 0.3);
    EXPECT_EQ(Figure("kind: TRUE_POSITIVES", d), c.tp);
    EXPECT_EQ(Figure("kind: TRUE_NEGATIVES", d), c.tn);
    EXPECT_EQ(Figure("kind: FALSE_POSITIVES threshold: 0.3", d), low.fp);
    EXPECT_EQ(Figure("kind: FALSE_NEGATIVES", d), c.fn);
    EXPECT_DOUBLE_EQ(Figure("kind: PRECISION", d), c.precision());
    EXPECT_DOUBLE_EQ(Figure("kind: RECALL threshold: 0.3", d), low.recall());
  }
  const Data d = Make(seed + 1, 40, 3);
  EXPECT_DOUBLE_EQ(Figure("kind: PRECISION class_id: 1", d), At(d, 0.5, 1).precision());
  Counts top;  // the two largest of each row count as positive
  for (int64_t e = 0; e < d.examples; ++e) {
    for (int64_t i = 0; i < 3; ++i) {
      int larger = 0;
      for (int64_t j = 0; j < 3; ++j) larger += d.p[e * 3 + j] > d.p[e * 3 + i];
      const bool truth = d.labels[e * 3 + i] != 0;
      (truth ? (larger < 2 ? top.tp : top.fn) : (larger < 2 ? top.fp : top.tn)) += 1;
    }
  }
  EXPECT_DOUBLE_EQ(Figure("kind: PRECISION k: 2", d), top.precision());
  EXPECT_DOUBLE_EQ(Figure("kind: RECALL k: 2", d), top.recall());
  Data none = Make(seed, 4, 1);
  for (double& p : none.p) p = 0.1;
  EXPECT_EQ(Figure("kind: PRECISION", none), 0) << "as divide_no_nan";
}

TEST(Metrics, AucIsTheAreaUnderTheCurveOfThresholds) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(seed);
  const Data d = Make(seed, 60, 1);
  for (int thresholds : {2, 7, 200}) {
    const std::vector<Counts> c = AtAll(d, thresholds);
    double roc = 0, roc_low = 0, pr_high = 0, pr = 0;
    for (size_t i = 0; i + 1 < c.size(); ++i) {
      const double width = c[i].fpr() - c[i + 1].fpr(), step = c[i].recall() - c[i + 1].recall();
      roc += width * (c[i].recall() + c[i + 1].recall()) / 2;
      roc_low += width * std::min(c[i].recall(), c[i + 1].recall());
      pr_high += step * std::max(c[i].precision(), c[i + 1].precision());
      const double p = c[i].tp + c[i].fp, next = c[i + 1].tp + c[i + 1].fp, rise = c[i].tp - c[i + 1].tp;
      const double slope = p == next ? 0 : rise / (p - next), intercept = c[i + 1].tp - slope * next;
      pr += slope * (rise + intercept * std::log(p > 0 && next > 0 ? p / next : 1)) / (c[i].tp + c[i].fn);
    }
    const std::string n = " num_thresholds: " + std::to_string(thresholds);
    EXPECT_NEAR(Figure("kind: AUC" + n, d), roc, 1e-12) << thresholds;
    EXPECT_NEAR(Figure("kind: AUC summation_method: MINORING" + n, d), roc_low, 1e-12) << thresholds;
    EXPECT_NEAR(Figure("kind: AUC curve: PR summation_method: MAJORING" + n, d), pr_high, 1e-12) << thresholds;
    EXPECT_NEAR(Figure("kind: AUC curve: PR" + n, d), pr, 1e-12) << thresholds;
    const auto best = [&](auto of, auto at, double value) {
      double most = 0;
      for (const Counts& one : c) {
        if (at(one) >= value) most = std::max(most, of(one));
      }
      return most;
    };
    const auto recall = [](const Counts& x) { return x.recall(); };
    const auto precision = [](const Counts& x) { return x.precision(); };
    const auto specificity = [](const Counts& x) { return x.specificity(); };
    EXPECT_DOUBLE_EQ(Figure("kind: PRECISION_AT_RECALL value: 0.5" + n, d), best(precision, recall, 0.5));
    EXPECT_DOUBLE_EQ(Figure("kind: RECALL_AT_PRECISION value: 0.5" + n, d), best(recall, precision, 0.5));
    EXPECT_DOUBLE_EQ(Figure("kind: SENSITIVITY_AT_SPECIFICITY value: 0.5" + n, d), best(recall, specificity, 0.5));
    EXPECT_DOUBLE_EQ(Figure("kind: SPECIFICITY_AT_SENSITIVITY value: 0.5" + n, d), best(specificity, recall, 0.5));
  }
  Data perfect = d;
  for (size_t i = 0; i < d.p.size(); ++i) perfect.p[i] = d.labels[i] != 0 ? 0.9 : 0.1;
  EXPECT_NEAR(Figure("kind: AUC num_thresholds: 200", perfect), 1, 1e-12);
}

TEST(Metrics, ScoresOfClasses) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(seed);
  const Data d = Make(seed, 50, 3);
  const auto score = [](double tp, double fp, double fn, double beta) {
    const double p = tp / (tp + fp + kEps), r = tp / (tp + fn + kEps);
    return p * r * (1 + beta * beta) / (beta * beta * p + r + kEps);
  };
  double macro = 0, weighted = 0, weights = 0, tp = 0, fp = 0, fn = 0;
  for (int64_t k = 0; k < 3; ++k) {
    double right = 0, wrong = 0, missed = 0;
    for (int64_t e = 0; e < d.examples; ++e) {
      const double* row = d.p.data() + e * 3;
      const bool predicted = std::max_element(row, row + 3) - row == k, truth = d.truth[e] == k;
      right += predicted && truth;
      wrong += predicted && !truth;
      missed += !predicted && truth;
    }
    macro += score(right, wrong, missed, 2) / 3;
    weighted += score(right, wrong, missed, 1) * (right + missed);
    weights += right + missed;
    tp += right;
    fp += wrong;
    fn += missed;
  }
  EXPECT_NEAR(Figure("kind: FBETA_SCORE beta: 2 average: MACRO num_classes: 3", d), macro, 1e-12);
  EXPECT_NEAR(Figure("kind: F1_SCORE average: WEIGHTED num_classes: 3", d), weighted / (weights + kEps), 1e-12);
  EXPECT_NEAR(Figure("kind: F1_SCORE average: MICRO num_classes: 3", d), score(tp, fp, fn, 1), 1e-12);
  double at = 0;
  for (int k = 0; k < 3; ++k) {
    const Counts c = At(d, 0.4, k);
    at += score(c.tp, c.fp, c.fn, 1) / 3;
  }
  EXPECT_NEAR(Figure("kind: F1_SCORE average: MACRO threshold: 0.4 num_classes: 3", d), at, 1e-12);
}

TEST(Metrics, IntersectionOverUnion) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(seed);
  const Data d = Make(seed, 50, 3);
  std::vector<double> iou;
  for (int k = 0; k < 3; ++k) {
    double both = 0, either = 0;
    for (int64_t e = 0; e < d.examples; ++e) {
      const double* row = d.p.data() + e * 3;
      const bool predicted = std::max_element(row, row + 3) - row == k, truth = d.truth[e] == k;
      both += predicted && truth;
      either += predicted || truth;
    }
    iou.push_back(both / (either + kEps));
  }
  EXPECT_NEAR(Figure("kind: MEAN_IOU num_classes: 3", d), (iou[0] + iou[1] + iou[2]) / 3, 1e-12);
  EXPECT_NEAR(Figure("kind: ONE_HOT_MEAN_IOU num_classes: 3", d), (iou[0] + iou[1] + iou[2]) / 3, 1e-12);
  EXPECT_NEAR(Figure("kind: IOU num_classes: 3 target_class_ids: [0, 2]", d), (iou[0] + iou[2]) / 2, 1e-12);
  const Data binary = Make(seed, 50, 1);
  const Counts c = At(binary, 0.5);
  const double one = c.tp / (c.tp + c.fp + c.fn + kEps), zero = c.tn / (c.tn + c.fp + c.fn + kEps);
  EXPECT_NEAR(Figure("kind: BINARY_IOU", binary), (one + zero) / 2, 1e-12);
  EXPECT_NEAR(Figure("kind: BINARY_IOU target_class_ids: 1", binary), one, 1e-12);
}

TEST(Metrics, R2Score) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(seed);
  const Data d = Make(seed, 30, 2);
  double want = 0;
  for (int64_t k = 0; k < 2; ++k) {
    double mean = 0, errors = 0, variance = 0;
    for (int64_t e = 0; e < 30; ++e) mean += d.labels[e * 2 + k] / 30.0;
    for (int64_t e = 0; e < 30; ++e) {
      errors += std::pow(d.labels[e * 2 + k] - d.p[e * 2 + k], 2);
      variance += std::pow(d.labels[e * 2 + k] - mean, 2);
    }
    want += (1 - errors / variance) / 2;
  }
  EXPECT_NEAR(Figure("kind: R2_SCORE num_classes: 2", d), want, 1e-9);
}

TEST(Metrics, MeansOfLosses) {
  const Data d{1, 2, {0.8, 0.3}, {1, 0}, {0}};
  EXPECT_NEAR(Figure("kind: BINARY_CROSSENTROPY", d), -(std::log(0.8) + std::log(0.7)) / 2, 1e-12);
  EXPECT_NEAR(Figure("kind: CATEGORICAL_CROSSENTROPY", d), -std::log(0.8 / 1.1), 1e-12);
  EXPECT_NEAR(Figure("kind: MEAN_SQUARED_ERROR", d), (0.04 + 0.09) / 2, 1e-12);
  EXPECT_NEAR(Figure("kind: COSINE_SIMILARITY", d), 0.8 / std::sqrt(0.64 + 0.09), 1e-12);
  EXPECT_NEAR(Figure("kind: HINGE", d), (0.2 + 1.3) / 2, 1e-12);
  EXPECT_NEAR(Figure("kind: LOG_COSH_ERROR", d), (std::log(std::cosh(0.2)) + std::log(std::cosh(0.3))) / 2, 1e-12);
  EXPECT_EQ(Figure("kind: BINARY_ACCURACY threshold: 0.2", d), 0.5);
  EXPECT_EQ(Figure("kind: CATEGORICAL_ACCURACY", d), 1);
}

// The examples of Keras' documentation.
TEST(Metrics, Correlations) {
  const Data d{2, 3, {0.1, 0.9, 0.5, 1, 0.9, 0.2}, {0, 1, 0.5f, 1, 1, 0.2f}, {0, 0}};
  EXPECT_NEAR(Figure("kind: PEARSON_CORRELATION", d), 0.9966996338993913, 1e-6);
  EXPECT_NEAR(Figure("kind: CONCORDANCE_CORRELATION", d), 0.9816320385426076, 1e-6);
  const Data constant{1, 2, {0.5, 0.5}, {0, 1}, {0}};
  EXPECT_TRUE(std::isnan(Figure("kind: PEARSON_CORRELATION", constant))) << "0 / 0, as in Keras";
}

TEST(Metrics, ExactAccuracyComparesNumbers) {
  const Data d{2, 2, {1, 0.5, 3, 4}, {1, 0.5f, 3, 5}, {0, 0}};
  EXPECT_EQ(Figure("kind: EXACT_ACCURACY", d), 0.75);
}

TEST(Metrics, IgnoredClassesDoNotCount) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(seed);
  const Data d = Make(seed, 50, 3);
  Data kept{0, 3, {}, {}, {}};
  double entropy = 0;
  for (int64_t e = 0; e < d.examples; ++e) {
    if (d.truth[e] == 1) continue;
    ++kept.examples;
    kept.truth.push_back(d.truth[e]);
    kept.p.insert(kept.p.end(), d.p.begin() + e * 3, d.p.begin() + e * 3 + 3);
    kept.labels.insert(kept.labels.end(), d.labels.begin() + e * 3, d.labels.begin() + e * 3 + 3);
    const double* row = d.p.data() + e * 3;
    entropy -= std::log(row[d.truth[e]] / (row[0] + row[1] + row[2]));
  }
  EXPECT_NEAR(Figure("kind: MEAN_IOU num_classes: 3 ignore_class: 1", d), Figure("kind: MEAN_IOU num_classes: 3", kept),
              1e-12);
  EXPECT_NEAR(Figure("kind: SPARSE_CATEGORICAL_CROSSENTROPY ignore_class: 1 average: MICRO", d),
              entropy / static_cast<double>(kept.examples), 1e-6);
  const Data binary = Make(seed, 50, 1);
  const Counts c = At(binary, 0.5);
  EXPECT_NEAR(Figure("kind: BINARY_IOU ignore_class: 0 target_class_ids: 1", binary), c.tp / (c.tp + c.fn + kEps),
              1e-12);
}

}  // namespace
}  // namespace cairn
