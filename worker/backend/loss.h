// Losses and metrics on the model's output: shared by the backends that compute on the CPU.
//
// Formulas and clipping as keras.losses and keras.metrics (epsilon 1e-7 for probabilities).
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "cairn/v1/job.pb.h"
#include "cairn/v1/optimizer.pb.h"
#include "common/base/status.h"
#include "worker/backend/backend.h"

namespace cairn {

// How the end of a model and its loss are computed together. A softmax (sigmoid) before a categorical (binary)
// cross-entropy on probabilities is fused: the loss takes the logits, the gradient is p - y, and the final activation
// has no backward of its own.
struct LossPlan {
  bool fused = false;    // the loss takes the input of the final activation
  bool softmax = false;  // cross-entropy over classes, else element-wise
  // By class, 1 where it is not named: what an example's loss and gradient are multiplied with in training
  // (keras.Model.fit's class_weight; the mean is still taken over the number of examples). Empty: all 1.
  std::vector<float> class_weights;
};
LossPlan PlanLoss(const Graph& graph, const v1::Loss& loss, absl::Span<const v1::ClassWeight> class_weights = {});

// outputs: [examples, outputs] as the plan says (logits where fused or from_logits). gradients: the same size, the
// gradient of the SUM over examples of the loss with regard to `outputs`; empty for evaluation, which has no class
// weights. With label_smoothing s a target t counts as t (1 - s) + s / classes (binary: s / 2), in evaluation too, as
// in Keras; metrics see t. Errors: INVALID_ARGUMENT, a label out of range.
//
// metrics: sums over examples. ROOT_MEAN_SQUARED_ERROR is the sum of squared errors (means over outputs): the root is
// taken of the final mean (MetricValue in common/model/job_check.h). Accuracy on logits of a binary loss compares with
// 0, the logit of 0.5.
template <typename Real>
absl::Status LossAndMetrics(const v1::Loss& loss, const LossPlan& plan, absl::Span<const v1::Metric> metrics,
                            int64_t examples, absl::Span<const Real> outputs, absl::Span<const float> labels,
                            int64_t label_size, absl::Span<Real> gradients, BatchSums* sums);

// What LossAndMetrics would refuse, before anything is computed: `outputs` numbers an example, `labels` of all
// examples.
absl::Status CheckLabels(const v1::Loss& loss, const LossPlan& plan, int64_t examples, int64_t outputs,
                         absl::Span<const float> labels, int64_t label_size);

}  // namespace cairn
