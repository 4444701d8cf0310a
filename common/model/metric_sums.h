// How a metric is made of sums over examples, and what it is called: figures of any cluster are added up exactly, and
// every node gets the same number of them.
//
// Pure functions; any thread. Formulas as keras.metrics (Keras 3). A metric has MetricSumCount sums:
//   means (accuracies, errors, losses): 1, over the examples the mean over their positions; of an output with masked
//     steps, where average is MICRO: 2, over the positions that count, and the count of these
//   TRUE_POSITIVES, ...: 1, a count; PRECISION: true and false positives; RECALL: true positives, false negatives
//   AUC, ..._AT_...: by threshold the true, then the false positives that lie between it and the next one
//   F1_SCORE, FBETA_SCORE: by class true positives, then false positives, then false negatives
//   ..._IOU: by class how many are both, then in the target, then predicted
//   R2_SCORE: by output the sum, then the sum of squares, then of squared errors; last the count
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

// The metric's defaults are filled in (CheckMetrics).
int MetricSumCount(const v1::Metric& metric);
// Of all of a job's, in their order.
int MetricSumCount(const v1::JobSpec& spec);
int MetricSumCount(absl::Span<const v1::Metric> metrics);

// The figure of its sums; NaN without examples.
double MetricFigure(const v1::Metric& metric, absl::Span<const double> sums, uint64_t examples);

std::string MetricNameOf(const v1::Metric& metric);  // "accuracy", "top_5_accuracy", "auc", "mean_io_u"

// Whether more is better, of a figure's name, with or without "val_".
bool MoreIsBetter(const v1::JobSpec& spec, const std::string& figure);

}  // namespace cairn
