// Losses and metrics of a model's output, for the backends that compute them on the CPU.
//
// Pure functions; any thread. Formulas and clipping are those of keras.losses and keras.metrics (epsilon 1e-7 for
// probabilities). An output of several axes consists of rows along its last axis: each row (position) has a loss, and
// the loss of an example is the mean over its rows.
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

// How the final activation of a model and its loss are computed together. A softmax (sigmoid) before a categorical
// (binary) cross-entropy of probabilities is fused: the loss takes the logits, the gradient is p - y, and the
// activation has no backward pass of its own.
struct LossPlan {
  bool fused = false;    // the loss takes the input of the final activation
  bool softmax = false;  // the loss is one of classes (IsCategorical); else it is element-wise
  // By class: the factor of the loss and the gradient of an example (or a position) in training, as keras.Model.fit's
  // class_weight; 1 for classes that are not named. The mean is still taken over the number of examples. Empty: all 1.
  std::vector<float> class_weights;
  int64_t positions = 1;    // rows of an example's output, each with a loss
  int64_t metric_rows = 1;  // the same for metrics: DICE and TVERSKY take the whole example as one row
  int mask = -1;            // the node that makes the output's mask of steps; -1: it has none
};
LossPlan PlanLoss(const Node& output, const v1::Loss& loss, absl::Span<const v1::ClassWeight> class_weights = {});
LossPlan PlanLoss(const Graph& graph, const v1::Loss& loss, absl::Span<const v1::ClassWeight> class_weights = {});
RowLossSettings SettingsOf(const v1::Loss& loss);

// The weights of the rows in the loss and the gradient. Labels are [examples, label_size]: a class number for each
// position (for SPARSE_..., and for other losses of classes if label_size is the number of positions), else a number
// for each output. They may be followed by the weights of the examples, [examples]. With those, or with
// loss.ignore_class, the weight of a row is
//   weight(example) / (rows of the example that are not ignored), 0 for ignored rows
// so that a loss is still divided by the number of examples, as in Keras. Without weights and ignored rows every row
// has 1 / positions, and the result is empty.
//
// step_mask: that of a masked output, [examples, steps] of 1 and 0; empty: every step counts. As in Keras the steps
// that count stand for all steps of the batch:
//   weight(example) * examples / (rows of the batch that are neither masked nor ignored)
// so that the batch's loss, divided by the number of examples, is the mean over the rows that count; 0 if there are
// none.
std::vector<float> RowWeights(const v1::Loss& loss, const LossPlan& plan, int64_t examples,
                              absl::Span<const float> labels, int64_t label_size,
                              absl::Span<const float> step_mask = {});
inline bool TakesClassNumbers(const v1::Loss& loss, const LossPlan& plan, int64_t outputs, int64_t label_size) {
  return loss.kind() == v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY ||
         (plan.softmax && label_size == plan.positions && label_size != outputs);
}

// A batch's outputs and what they should have been.
template <typename Real>
struct LabeledOutputs {
  int64_t examples = 0;
  absl::Span<const Real> outputs;  // [examples, outputs], as the plan says: logits if fused or loss.from_logits
  absl::Span<const float> labels;  // as for RowWeights
  int64_t label_size = 1;
  absl::Span<const float> step_mask = {};  // as for RowWeights
};

// Computes the loss, its gradient and the metrics. gradients: of the size of the outputs, the gradient of the SUM of
// the loss over the examples with respect to them; empty for evaluation, which has no class weights. With
// label_smoothing s a target t counts as t (1 - s) + s / classes (binary: s / 2), in evaluation too, as in Keras;
// metrics use t. Errors: INVALID_ARGUMENT if a label is out of range.
//
// Rows of masked steps (step_mask, as for RowWeights) have no loss, gradient or metrics; their labels may be anything.
//
// metrics: MetricSumCount sums of each (common/model/metric_sums.h), without weights. The accuracy of the logits of a
// binary loss compares with 0, the logit of 0.5; the other metrics use the model's output after its activation.
template <typename Real>
absl::Status LossAndMetrics(const v1::Loss& loss, const LossPlan& plan, absl::Span<const v1::Metric> metrics,
                            const LabeledOutputs<Real>& batch, absl::Span<Real> gradients, BatchSums* sums);

// Computes the metrics alone, into sums->metrics. There is no step mask.
absl::Status MetricsOf(const v1::Loss& loss, const LossPlan& plan, absl::Span<const v1::Metric> metrics,
                       const LabeledOutputs<float>& batch, BatchSums* sums);

// Returns the error that LossAndMetrics would return, before anything is computed. outputs: numbers of an example;
// labels: those of all examples.
absl::Status CheckLabels(const v1::Loss& loss, const LossPlan& plan, int64_t examples, int64_t outputs,
                         absl::Span<const float> labels, int64_t label_size);

}  // namespace cairn
