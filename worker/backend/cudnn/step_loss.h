// StepLoss: what the host does for the loss of a program's steps: it checks labels, weighs rows, and makes a step's
// sums of the numbers that the device computed. Of one output, or of several (worker/backend/outputs_loss.h).
//
// Immutable; used on the program's thread. The numbers of a step, float64: of one output its loss with the penalties of
// layers, then its metrics; of several the penalties, then for each part its loss, without its weight, and its metrics.
// Metrics that the host counts are not among them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/backend/backend.h"
#include "worker/backend/cudnn/lowering_options.h"
#include "worker/backend/loss.h"
#include "worker/backend/outputs_loss.h"

namespace cairn::cudnn {

class StepLoss {
 public:
  // graph: that of the program. `options` is kept; both outlive this.
  StepLoss(const Graph& graph, const ProgramOptions& options);

  // Sets what the options say of the loss.
  void SetIn(LoweringOptions* lowering) const;

  bool masked() const { return plan_.mask >= 0; }      // it leaves masked steps out
  bool host_metrics() const { return host_metrics_; }  // metrics are counted here, from outputs that are copied
  int64_t results() const;                             // numbers of a step
  int64_t positions() const { return plan_.positions; }
  const std::vector<float>& class_weights() const { return plan_.class_weights; }
  // What to prepare for, before there is a batch that says it: the numbers of an example's labels, the fewest where
  // only the data tells; those with the weights of its rows; whether rows have weights although the examples have none.
  int64_t label_size() const;
  int64_t label_numbers() const;
  bool weighs_rows() const;

  // Errors: INVALID_ARGUMENT if a label is out of range; several outputs: it names the output.
  absl::Status Check(const Batch& batch) const;
  // What follows the labels on the device; empty: nothing.
  std::vector<float> RowWeightsOf(const Batch& batch) const;
  // outputs: of all examples, and step_mask: for the metrics that are counted here. Errors: INVALID_ARGUMENT if a label
  // of a step that counts is out of range.
  absl::StatusOr<BatchSums> Sums(const Batch& batch, const double* results, absl::Span<const float> outputs,
                                 absl::Span<const float> step_mask) const;
  // Makes the outputs of a prediction those of the model.
  void Activate(absl::Span<float> outputs) const { parts_.Activate<float>(outputs); }

 private:
  absl::StatusOr<BatchSums> SumsOfParts(const Batch& batch, const double* results,
                                        absl::Span<const float> outputs) const;

  const ProgramOptions& options_;
  const OutputsLoss parts_;  // empty: the model has one output
  const LossPlan plan_;
  const int64_t outputs_;  // numbers of an example's output
  const bool host_metrics_;
};

}  // namespace cairn::cudnn
