// ReferenceNet: the forward and backward pass of a graph in float64. Its gradients are tested against finite
// differences of its losses (tests/unit/backend), and the other backends against its gradients.
//
// Not thread-safe. The result of a call depends only on its arguments.
#pragma once

#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "worker/backend/backend.h"
#include "worker/backend/loss.h"
#include "worker/backend/outputs_loss.h"
#include "worker/backend/reference/reference_layer.h"

namespace cairn {

class ReferenceNet {
 public:
  // loss, metrics, class_weights and outputs: as ProgramOptions.
  ReferenceNet(std::shared_ptr<const Graph> graph, const v1::Loss& loss, std::vector<v1::Metric> metrics,
               absl::Span<const v1::ClassWeight> class_weights = {}, std::vector<JoinedOutput> outputs = {});

  // Program::TrainStep in float64. values, gradients: space_size() numbers each. If `gradients` is empty, only the
  // training loss is computed, as finite differences need it.
  absl::StatusOr<BatchSums> TrainStep(const Batch& batch, const StepInfo& info, absl::Span<const double> values,
                                      absl::Span<double> gradients);
  absl::StatusOr<BatchSums> Evaluate(const Batch& batch, absl::Span<const double> values);
  // Returns the outputs: [examples, output shape...].
  absl::StatusOr<std::vector<double>> Predict(const Batch& batch, absl::Span<const double> values);

  uint64_t memory_bytes() const;  // of the last call's activations

 private:
  using Activations = reference::Activations;

  absl::Status CheckArguments(const Batch& batch, size_t values, size_t gradients) const;
  void TakeInput(const Batch& batch, const Node& node, std::vector<double>* output) const;
  // training: null for evaluation.
  absl::Status Forward(const Batch& batch, const StepInfo* training, absl::Span<const double> values);
  void Backward(absl::Span<const double> values, absl::Span<double> gradients);
  absl::StatusOr<BatchSums> Score(const Batch& batch, absl::Span<double> gradient);

  std::shared_ptr<const Graph> graph_;
  const v1::Loss loss_;
  const std::vector<v1::Metric> metrics_;
  const LossPlan plan_;
  const OutputsLoss outputs_loss_;
  int64_t examples_ = 0;
  std::vector<Activations> nodes_;
};

}  // namespace cairn
