#include "common/model/metric_sums.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/model/external_check.h"
#include "common/model/job_outputs.h"

namespace cairn {
namespace {

constexpr double kEpsilon = 1e-7;  // keras.config.epsilon()
constexpr int32_t kTopKDefault = 5;

double DivideOrZero(double a, double b) { return b == 0 ? 0 : a / b; }

// The counts for each threshold, from those of the buckets.
struct Confusion {
  std::vector<double> tp, fp;
  double positives = 0, negatives = 0;

  explicit Confusion(absl::Span<const double> sums) : tp(sums.size() / 2), fp(sums.size() / 2) {
    for (size_t i = tp.size(); i-- > 0;) {
      positives += sums[i];
      negatives += sums[tp.size() + i];
      tp[i] = positives;
      fp[i] = negatives;
    }
  }
  double Recall(size_t i) const { return DivideOrZero(tp[i], positives); }
  double Precision(size_t i) const { return DivideOrZero(tp[i], tp[i] + fp[i]); }
  double Specificity(size_t i) const { return DivideOrZero(negatives - fp[i], negatives); }
};

// Davis and Goadrich 2006: between two thresholds the true positives are interpolated linearly, not the precision.
double InterpolatedPr(const Confusion& c) {
  double area = 0;
  for (size_t i = 0; i + 1 < c.tp.size(); ++i) {
    const double p = c.tp[i] + c.fp[i], next = c.tp[i + 1] + c.fp[i + 1];
    const double rise = c.tp[i] - c.tp[i + 1], slope = DivideOrZero(rise, std::max(p - next, 0.0));
    const double intercept = c.tp[i + 1] - slope * next, ratio = p > 0 && next > 0 ? p / next : 1;
    area += DivideOrZero(slope * (rise + intercept * std::log(ratio)), std::max(c.positives, 0.0));
  }
  return area;
}

double Area(const v1::Metric& metric, const Confusion& c) {
  const bool pr = metric.curve() == v1::Metric::PR;
  const bool interpolate = metric.summation_method() == v1::Metric::SUMMATION_UNSPECIFIED ||
                           metric.summation_method() == v1::Metric::INTERPOLATION;
  if (pr && interpolate) return InterpolatedPr(c);
  const auto x = [&](size_t i) { return pr ? c.Recall(i) : DivideOrZero(c.fp[i], c.negatives); };
  const auto y = [&](size_t i) { return pr ? c.Precision(i) : c.Recall(i); };
  double area = 0;
  for (size_t i = 0; i + 1 < c.tp.size(); ++i) {
    const double a = y(i), b = y(i + 1);
    const double height = interpolate                                         ? (a + b) / 2
                          : metric.summation_method() == v1::Metric::MINORING ? std::min(a, b)
                                                                              : std::max(a, b);
    area += (x(i) - x(i + 1)) * height;
  }
  return area;
}

// The largest `of` among the thresholds where `at` reaches the metric's value; 0 if there are none.
template <typename Of, typename At>
double BestAt(const v1::Metric& metric, size_t thresholds, Of of, At at) {
  double best = 0;
  for (size_t i = 0; i < thresholds; ++i) {
    if (at(i) >= static_cast<double>(metric.value())) best = std::max(best, of(i));
  }
  return best;
}

double FigureOfThresholds(const v1::Metric& metric, absl::Span<const double> sums) {
  const Confusion c(sums);
  const size_t n = c.tp.size();
  const auto recall = [&](size_t i) { return c.Recall(i); };
  const auto precision = [&](size_t i) { return c.Precision(i); };
  const auto specificity = [&](size_t i) { return c.Specificity(i); };
  switch (metric.kind()) {
    case v1::Metric::PRECISION_AT_RECALL: return BestAt(metric, n, precision, recall);
    case v1::Metric::RECALL_AT_PRECISION: return BestAt(metric, n, recall, precision);
    case v1::Metric::SENSITIVITY_AT_SPECIFICITY: return BestAt(metric, n, recall, specificity);
    case v1::Metric::SPECIFICITY_AT_SENSITIVITY: return BestAt(metric, n, specificity, recall);
    default: return Area(metric, c);
  }
}

double FigureOfScores(const v1::Metric& metric, absl::Span<const double> sums) {
  const size_t classes = sums.size() / 3;
  const double beta = metric.kind() == v1::Metric::F1_SCORE || !metric.has_beta() ? 1 : metric.beta();
  const auto score = [&](double tp, double fp, double fn) {
    const double p = tp / (tp + fp + kEpsilon), r = tp / (tp + fn + kEpsilon);
    return p * r * (1 + beta * beta) / (beta * beta * p + r + kEpsilon);
  };
  double tp = 0, fp = 0, fn = 0, all = 0, weighted = 0, weights = 0;
  for (size_t c = 0; c < classes; ++c) {
    const double right = sums[c], wrong = sums[classes + c], missed = sums[2 * classes + c];
    const double own = score(right, wrong, missed);
    tp += right;
    fp += wrong;
    fn += missed;
    all += own;
    weighted += own * (right + missed);
    weights += right + missed;
  }
  switch (metric.average()) {
    case v1::Metric::MICRO: return score(tp, fp, fn);
    case v1::Metric::WEIGHTED: return weighted / (weights + kEpsilon);
    default: return all / static_cast<double>(classes);
  }
}

double FigureOfIntersections(const v1::Metric& metric, absl::Span<const double> sums) {
  const int classes = static_cast<int>(sums.size() / 3);
  double total = 0;
  int counted = 0;
  for (int c = 0; c < classes; ++c) {
    const auto& wanted = metric.target_class_ids();
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), c) == wanted.end()) continue;
    const double both = sums[c], either = sums[classes + c] + sums[2 * classes + c] - both;
    if (either <= 0) continue;  // the class does not occur
    total += both / (either + kEpsilon);
    ++counted;
  }
  return DivideOrZero(total, counted);
}

// 1 - errors / variance, averaged over the outputs.
double FigureOfR2(absl::Span<const double> sums) {
  const size_t outputs = sums.size() / 3;
  const double count = sums.back();
  double total = 0;
  for (size_t i = 0; i < outputs; ++i) {
    const double sum = sums[i], variance = sums[outputs + i] - sum * (sum / count);
    if (variance != 0) total += 1 - sums[2 * outputs + i] / variance;
  }
  return total / static_cast<double>(outputs);
}

}  // namespace

MetricFamily FamilyOf(v1::Metric::Kind kind) {
  switch (kind) {
    case v1::Metric::TRUE_POSITIVES:
    case v1::Metric::TRUE_NEGATIVES:
    case v1::Metric::FALSE_POSITIVES:
    case v1::Metric::FALSE_NEGATIVES: return MetricFamily::kCount;
    case v1::Metric::PRECISION:
    case v1::Metric::RECALL: return MetricFamily::kPositives;
    case v1::Metric::AUC:
    case v1::Metric::PRECISION_AT_RECALL:
    case v1::Metric::RECALL_AT_PRECISION:
    case v1::Metric::SENSITIVITY_AT_SPECIFICITY:
    case v1::Metric::SPECIFICITY_AT_SENSITIVITY: return MetricFamily::kThresholds;
    case v1::Metric::F1_SCORE:
    case v1::Metric::FBETA_SCORE: return MetricFamily::kScores;
    case v1::Metric::BINARY_IOU:
    case v1::Metric::IOU:
    case v1::Metric::MEAN_IOU:
    case v1::Metric::ONE_HOT_IOU:
    case v1::Metric::ONE_HOT_MEAN_IOU: return MetricFamily::kIntersections;
    case v1::Metric::R2_SCORE: return MetricFamily::kR2;
    default: return MetricFamily::kMean;
  }
}

int MetricSumCount(const v1::Metric& metric) {
  switch (FamilyOf(metric.kind())) {
    case MetricFamily::kPositives: return 2;
    case MetricFamily::kThresholds: return 2 * metric.num_thresholds();
    case MetricFamily::kScores: return 3 * metric.num_classes();
    case MetricFamily::kIntersections: return metric.kind() == v1::Metric::BINARY_IOU ? 6 : 3 * metric.num_classes();
    case MetricFamily::kR2: return 3 * metric.num_classes() + 1;
    case MetricFamily::kMean: return metric.average() == v1::Metric::MICRO ? 2 : 1;
    case MetricFamily::kCount: break;
  }
  return 1;
}

int MetricSumCount(const v1::JobSpec& spec) {
  if (const v1::External* const external = ExternalOf(spec)) return external->figures_size();
  int sums = 0;
  for (const v1::Metric& metric : spec.metrics()) sums += MetricSumCount(metric);
  for (const v1::OutputLoss& output : spec.outputs()) {
    ++sums;  // for the loss
    for (const v1::Metric& metric : output.metrics()) sums += MetricSumCount(metric);
  }
  return sums;
}

int MetricSumCount(absl::Span<const v1::Metric> metrics) {
  int sums = 0;
  for (const v1::Metric& metric : metrics) sums += MetricSumCount(metric);
  return sums;
}

double MetricFigure(const v1::Metric& metric, absl::Span<const double> sums, uint64_t examples) {
  if (examples == 0 || sums.size() != static_cast<size_t>(MetricSumCount(metric))) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  switch (FamilyOf(metric.kind())) {
    case MetricFamily::kCount: return sums[0];
    case MetricFamily::kPositives: return DivideOrZero(sums[0], sums[0] + sums[1]);
    case MetricFamily::kThresholds: return FigureOfThresholds(metric, sums);
    case MetricFamily::kScores: return FigureOfScores(metric, sums);
    case MetricFamily::kIntersections: return FigureOfIntersections(metric, sums);
    case MetricFamily::kR2: return FigureOfR2(sums);
    case MetricFamily::kMean: break;
  }
  const double mean =
      metric.average() == v1::Metric::MICRO ? DivideOrZero(sums[0], sums[1]) : sums[0] / static_cast<double>(examples);
  return metric.kind() == v1::Metric::ROOT_MEAN_SQUARED_ERROR ? std::sqrt(mean) : mean;
}

std::string MetricNameOf(const v1::Metric& metric) {
  if (!metric.name().empty()) return metric.name();
  switch (metric.kind()) {
    case v1::Metric::TOP_K_ACCURACY:
      return absl::StrCat("top_", metric.k() == 0 ? kTopKDefault : metric.k(), "_accuracy");
    case v1::Metric::LOG_COSH_ERROR: return "logcosh";
    case v1::Metric::BINARY_IOU: return "binary_io_u";
    case v1::Metric::IOU: return "io_u";
    case v1::Metric::MEAN_IOU: return "mean_io_u";
    case v1::Metric::ONE_HOT_IOU: return "one_hot_io_u";
    case v1::Metric::ONE_HOT_MEAN_IOU: return "one_hot_mean_io_u";
    case v1::Metric::METRIC_UNSPECIFIED: return "unknown";
    default: break;
  }
  if (!v1::Metric::Kind_IsValid(metric.kind())) return "unknown";
  return absl::AsciiStrToLower(v1::Metric::Kind_Name(metric.kind()));
}

bool MoreIsBetter(const v1::JobSpec& spec, const std::string& figure) {
  const absl::string_view base = absl::StripPrefix(figure, "val_");
  for (const v1::Metric& metric : FiguresOfJob(spec)) {
    if (MetricNameOf(metric) != base) continue;
    const MetricFamily family = FamilyOf(metric.kind());
    if (family == MetricFamily::kMean) break;
    return metric.kind() != v1::Metric::FALSE_POSITIVES && metric.kind() != v1::Metric::FALSE_NEGATIVES;
  }
  return absl::StrContains(base, "accuracy") || absl::StrContains(base, "cosine_similarity") ||
         absl::StrContains(base, "correlation");
}

}  // namespace cairn
