// Losses and metrics on the model's output: shared by the backends that compute on the CPU.
//
// Formulas and clipping as keras.losses and keras.metrics (epsilon 1e-7 for probabilities). An output of several axes
// is rows of its last axis: a loss is computed for each row (position), an example's is the mean over its rows.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "cairn/v1/job.pb.h"
#include "cairn/v1/optimizer.pb.h"
#include "common/base/status.h"
#include "worker/backend/backend.h"
#include "worker/backend/row_loss.h"

namespace cairn {

// How the end of a model and its loss are computed together. A softmax (sigmoid) before a categorical (binary)
// cross-entropy on probabilities is fused: the loss takes the logits, the gradient is p - y, and the final activation
// has no backward of its own.
struct LossPlan {
  bool fused = false;    // the loss takes the input of the final activation
  bool softmax = false;  // of classes (IsCategorical), else element-wise
  // By class, 1 where it is not named: what an example's (a position's) loss and gradient are multiplied with in
  // training (keras.Model.fit's class_weight; the mean is still taken over the number of examples). Empty: all 1.
  std::vector<float> class_weights;
  int64_t positions = 1;    // rows of an example's output, each with a loss
  int64_t metric_rows = 1;  // the same of metrics: DICE and TVERSKY take the whole example as one row
  int mask = -1;            // node whose mask of steps the output has; -1: none
};
LossPlan PlanLoss(const Node& output, const v1::Loss& loss, absl::Span<const v1::ClassWeight> class_weights = {});
LossPlan PlanLoss(const Graph& graph, const v1::Loss& loss, absl::Span<const v1::ClassWeight> class_weights = {});
RowLossSettings SettingsOf(const v1::Loss& loss);

// Labels are [examples, label_size]: a class number for each position (SPARSE_..., and other losses of classes where
// label_size is the number of positions), else a number for each output. Behind them may stand the weights of examples,
// [examples]. They, and loss.ignore_class, weigh the rows' losses and gradients:
//   weight(example) / (rows of the example that are not ignored), 0 for ignored rows
// so that a loss is still divided by the number of examples, as in Keras; without weights and ignored rows all have
// 1 / positions, and the vector is empty.
//
// step_mask: of a masked output, [examples, steps] of 1 and 0; empty: every step counts. As in Keras masked steps count
// for nothing, and the others for all steps of the batch:
//   weight(example) * examples / (rows of the batch that are neither masked nor ignored)
// so that the batch's loss, divided by the number of examples, is the mean over the rows that count; 0 without any.
std::vector<float> RowWeights(const v1::Loss& loss, const LossPlan& plan, int64_t examples,
                              absl::Span<const float> labels, int64_t label_size,
                              absl::Span<const float> step_mask = {});
inline bool TakesClassNumbers(const v1::Loss& loss, const LossPlan& plan, int64_t outputs, int64_t label_size) {
  return loss.kind() == v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY ||
         (plan.softmax && label_size == plan.positions && label_size != outputs);
}

// outputs: [examples, outputs] as the plan says (logits where fused or from_logits). gradients: the same size, the
// gradient of the SUM over examples of the loss with regard to `outputs`; empty for evaluation, which has no class
// weights. With label_smoothing s a target t counts as t (1 - s) + s / classes (binary: s / 2), in evaluation too, as
// in Keras; metrics see t. Errors: INVALID_ARGUMENT, a label out of range.
//
// Rows of masked steps (step_mask, as of RowWeights) have neither loss nor gradient nor metrics, and any label.
//
// metrics: MetricSumCount sums of each (common/model/metric_sums.h), without weights. Accuracy on logits of a binary
// loss compares with 0, the logit of 0.5; others see what the model gives.
template <typename Real>
absl::Status LossAndMetrics(const v1::Loss& loss, const LossPlan& plan, absl::Span<const v1::Metric> metrics,
                            int64_t examples, absl::Span<const Real> outputs, absl::Span<const float> labels,
                            int64_t label_size, absl::Span<Real> gradients, BatchSums* sums,
                            absl::Span<const float> step_mask = {});

// The metrics alone, into sums->metrics.
absl::Status MetricsOf(const v1::Loss& loss, const LossPlan& plan, absl::Span<const v1::Metric> metrics,
                       int64_t examples, absl::Span<const float> outputs, absl::Span<const float> labels,
                       int64_t label_size, BatchSums* sums);

// What LossAndMetrics would refuse, before anything is computed: `outputs` numbers an example, `labels` of all
// examples.
absl::Status CheckLabels(const v1::Loss& loss, const LossPlan& plan, int64_t examples, int64_t outputs,
                         absl::Span<const float> labels, int64_t label_size);

}  // namespace cairn
