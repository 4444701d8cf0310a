// OutputsLoss: the loss of a model that trains several outputs: the sum of weight * loss over them, as in Keras.
//
// Immutable; any thread. It takes the joined output (common/model/job_outputs.h) and computes the part of each output
// by itself with worker/backend/loss.h.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "common/base/status.h"
#include "worker/backend/backend.h"
#include "worker/backend/loss.h"

namespace cairn {

class OutputsLoss {
 public:
  // outputs: empty if the model has one output; then this does nothing.
  explicit OutputsLoss(std::vector<JoinedOutput> outputs);
  bool empty() const { return outputs_.empty(); }

  // An output with a loss.
  struct Part {
    JoinedOutput output;
    LossPlan plan;
    std::vector<v1::Metric> metrics;
    float weight = 1;
  };
  const std::vector<Part>& parts() const { return parts_; }
  int64_t label_size() const { return labels_; }  // numbers of an example's targets

  // joined: [examples, all outputs]. labels: [examples, label_size], the targets of each example one after the other,
  // then the weights of the examples, if any. gradients: that of `joined`, or empty; zero for an output without a loss.
  // sums: `loss` is the weighted sum; `metrics` are each output's loss without its weight, then its metrics
  // (FiguresOfJob). Errors: INVALID_ARGUMENT names the output.
  template <typename Real>
  absl::Status Compute(int64_t examples, absl::Span<const Real> joined, absl::Span<const float> labels,
                       int64_t label_size, absl::Span<Real> gradients, BatchSums* sums) const;

  // For backends that compute the losses themselves. Returns the error that Compute would return, before anything is
  // computed.
  absl::Status CheckLabels(int64_t examples, absl::Span<const float> labels, int64_t label_size) const;
  // The weights of rows (worker/backend/loss.h) of each part, one part after the other; empty: none has any.
  std::vector<float> RowWeightsOf(int64_t examples, absl::Span<const float> labels, int64_t label_size) const;
  // The metrics of all parts, without their losses.
  absl::StatusOr<std::vector<double>> MetricsOfParts(int64_t examples, absl::Span<const float> joined,
                                                     absl::Span<const float> labels, int64_t label_size) const;

  // Applies the activations that the joined model leaves out to its predictions, in place.
  template <typename Real>
  void Activate(absl::Span<Real> joined) const;

 private:
  absl::Status CheckLabelSize(int64_t examples, absl::Span<const float> labels, int64_t label_size) const;
  // The part's numbers of each example, one after the other, then the weights of the examples, if any.
  std::vector<float> LabelsOf(const Part& part, int64_t examples, absl::Span<const float> labels,
                              int64_t label_size) const;
  // The part's numbers of the joined output, one example after the other.
  template <typename Real>
  std::vector<Real> OutputsOf(const Part& part, int64_t examples, absl::Span<const Real> joined) const;

  std::vector<JoinedOutput> outputs_;
  std::vector<Part> parts_;        // of the trained outputs
  int64_t size_ = 0, labels_ = 0;  // numbers of an example
};

}  // namespace cairn
