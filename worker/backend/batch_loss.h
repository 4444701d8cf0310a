// The losses that are not sums over rows of an output: CTC, of an example's sequence, and CIRCLE, of the pairs of a
// batch. LossAndMetrics (worker/backend/loss.h) calls them; the job's check has refused metrics, masks and class
// weights beside them.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "cairn/v1/optimizer.pb.h"
#include "common/base/status.h"
#include "worker/backend/batch_formulas.h"
#include "worker/backend/loss.h"

namespace cairn {

bool IsBatchLoss(v1::Loss::Kind kind);
CircleSettings CircleSettingsOf(const v1::Loss& loss);

// outputs: numbers of an example. labels: [examples, label_size]. Errors: INVALID_ARGUMENT, as CheckLabels.
absl::Status CheckBatchLabels(const v1::Loss& loss, const LossPlan& plan, int64_t examples, int64_t outputs,
                              absl::Span<const float> labels, int64_t label_size);

// The sum of the loss over the examples; its gradient with respect to the outputs, [examples, ...], unless `gradients`
// is empty. The labels are checked. weights: those of the examples; empty: all 1.
template <typename Real>
double BatchLoss(const v1::Loss& loss, const LossPlan& plan, const LabeledOutputs<Real>& batch,
                 absl::Span<const float> weights, absl::Span<Real> gradients);

}  // namespace cairn
