// How a metric is computed from sums over examples, and what it is called. The sums of all nodes are added exactly, and
// every node computes the same number of them.
//
// Pure functions; any thread. Formulas as keras.metrics (Keras 3). A metric has MetricSumCount sums:
//   means (accuracies, errors, losses): 1, the sum over the examples of the mean over their positions;
//     if the output has masked steps and average is MICRO: 2, the sum over the positions that count, and their count
//   TRUE_POSITIVES, ...: 1, a count; PRECISION: true and false positives; RECALL: true positives, false negatives
//   AUC, ..._AT_...: for each threshold the true, then the false positives between it and the next threshold
//   F1_SCORE, FBETA_SCORE: for each class true positives, then false positives, then false negatives
//   ..._IOU: for each class the intersection, then the count in the target, then the count in the prediction
//   R2_SCORE: for each output the sum, then the sum of squares, then of squared errors; last the count
#pragma once

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "cairn/v1/job.pb.h"
#include "cairn/v1/job_status.pb.h"

namespace cairn {

enum class MetricFamily {
  kMean,           // 1 sum, or 2
  kCount,          // 1 sum, not divided by the examples
  kPositives,      // precision and recall
  kThresholds,     // AUC and ..._AT_...
  kScores,         // F1, FBETA
  kIntersections,  // IoU
  kR2,
};
MetricFamily FamilyOf(v1::Metric::Kind kind);

// The metric must have its defaults filled in (CheckMetrics).
int MetricSumCount(const v1::Metric& metric);
// The sums of all metrics of a job, in order.
int MetricSumCount(const v1::JobSpec& spec);
int MetricSumCount(absl::Span<const v1::Metric> metrics);

// The metric's value from its sums; NaN if there are no examples.
double MetricFigure(const v1::Metric& metric, absl::Span<const double> sums, uint64_t examples);

std::string MetricNameOf(const v1::Metric& metric);  // "accuracy", "top_5_accuracy", "auc", "mean_io_u"

// Whether larger is better for this figure. Its name may begin with "val_".
bool MoreIsBetter(const v1::JobSpec& spec, const std::string& figure);

}  // namespace cairn
