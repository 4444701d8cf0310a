// OutputsLoss: the loss of a model that trains several outputs: the sum of weight * loss over them, as Keras adds them.
//
// Immutable; any thread. Takes the joined output (common/model/job_outputs.h) and computes each output's part by itself
// with worker/backend/loss.h.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "common/base/status.h"
#include "worker/backend/backend.h"
#include "worker/backend/loss.h"

namespace cairn {

class OutputsLoss {
 public:
  // Empty: the model has one output, and this does nothing.
  explicit OutputsLoss(std::vector<JoinedOutput> outputs);
  bool empty() const { return outputs_.empty(); }

  // joined: [examples, all outputs]. labels: [examples, label_size], each example's targets one after the other, then
  // any weights [examples]. gradients: of joined, or empty; zero for an output that has no loss. sums: `loss` is the
  // weighted sum, `metrics` are each output's loss without its weight, then its metrics (FiguresOfJob). Errors:
  // INVALID_ARGUMENT names the output.
  template <typename Real>
  absl::Status Compute(int64_t examples, absl::Span<const Real> joined, absl::Span<const float> labels,
                       int64_t label_size, absl::Span<Real> gradients, BatchSums* sums) const;

  // The activations that the joined model leaves out, of predictions.
  template <typename Real>
  void Activate(absl::Span<Real> joined) const;

 private:
  struct Part {
    JoinedOutput output;
    LossPlan plan;
    std::vector<v1::Metric> metrics;
  };

  // The part's numbers of each example, end to end; then any weights.
  std::vector<float> LabelsOf(const Part& part, int64_t examples, absl::Span<const float> labels,
                              int64_t label_size) const;

  std::vector<JoinedOutput> outputs_;
  std::vector<Part> parts_;        // the trained ones
  int64_t size_ = 0, labels_ = 0;  // numbers of an example
};

}  // namespace cairn
