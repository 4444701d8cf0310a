// ReferenceNet: a graph's forward and backward pass in float64. Its gradients are checked against finite differences
// of its own losses (tests/unit/backend), and the other backends against its gradients.
//
// For one thread at a time. Every call computes from its arguments alone.
#pragma once

#include <memory>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "worker/backend/backend.h"
#include "worker/backend/loss.h"
#include "worker/backend/reference/reference_ops.h"

namespace cairn {

class ReferenceNet {
 public:
  // loss, metrics and class_weights: as ProgramOptions.
  ReferenceNet(std::shared_ptr<const Graph> graph, const v1::Loss& loss, std::vector<v1::Metric> metrics,
               absl::Span<const v1::ClassWeight> class_weights = {});

  // Program::TrainStep in float64; values, gradients: space_size() numbers. Without gradients (an empty span) it is the
  // training loss alone, which finite differences are taken of.
  absl::StatusOr<BatchSums> TrainStep(const Batch& batch, const StepInfo& info, absl::Span<const double> values,
                                      absl::Span<double> gradients);
  absl::StatusOr<BatchSums> Evaluate(const Batch& batch, absl::Span<const double> values);
  // [examples, output shape...]
  absl::StatusOr<std::vector<double>> Predict(const Batch& batch, absl::Span<const double> values);

  uint64_t memory_bytes() const;  // of the last call's activations

 private:
  // One node's numbers for the batch at hand.
  struct Activations {
    std::vector<double> before;  // before the activation, where the layer has one
    std::vector<double> output;
    std::vector<double> gradient;           // with regard to `output`; the last node's of a fused loss: to `before`
    std::vector<float> mask;                // Dropout, SpatialDropout2D, MultiHeadAttention
    reference::BatchStatistics statistics;  // BatchNormalization
    std::vector<double> between;            // SeparableConv2D: after the depthwise convolution
    std::vector<double> query, key, value, weights, heads;  // MultiHeadAttention: before the last projection
  };

  absl::Status CheckArguments(const Batch& batch, size_t values, size_t gradients) const;
  // training: null for evaluation.
  absl::Status Forward(const Batch& batch, const StepInfo* training, absl::Span<const double> values);
  absl::Status ForwardNode(const Node& node, const StepInfo* training, absl::Span<const double> values);
  void ForwardJoin(const Node& node, absl::Span<double> y);
  void ForwardSeparable(const Node& node, absl::Span<const double> values, absl::Span<double> y);
  void ForwardAttention(const Node& node, const StepInfo* training, absl::Span<const double> values,
                        absl::Span<double> y);
  absl::Status ForwardEmbedding(const Node& node, absl::Span<const double> table, absl::Span<double> y) const;
  void Backward(absl::Span<const double> values, absl::Span<double> gradients);
  void BackwardNode(const Node& node, absl::Span<const double> before_gradient, absl::Span<const double> values,
                    absl::Span<double> gradients);
  void BackwardJoin(const Node& node, absl::Span<const double> dy);
  void BackwardSeparable(const Node& node, absl::Span<const double> dy, absl::Span<const double> values,
                         absl::Span<double> gradients);
  void BackwardAttention(const Node& node, absl::Span<const double> dy, absl::Span<const double> values,
                         absl::Span<double> gradients);
  absl::StatusOr<BatchSums> Score(const Batch& batch, absl::Span<double> gradient);

  reference::Geometry GeometryOf(const Node& node) const;
  // The two convolutions of a SeparableConv2D.
  reference::Geometry DepthwiseOf(const Node& node) const;
  reference::Geometry PointwiseOf(const Node& node) const;
  reference::AttentionShape AttentionOf(const Node& node) const;
  const Shape& ShapeOf(const Node& node, size_t input) const { return graph_->nodes()[node.inputs[input]].output; }
  // The variable called `name` of the node within the parameter space; empty where the node has none such.
  template <typename Number>
  absl::Span<Number> VariableOf(const Node& node, const char* name, absl::Span<Number> space) const {
    for (int v : node.variables) {
      const Variable& variable = graph_->variables()[v];
      if (absl::EndsWith(variable.name, absl::StrCat("/", name))) return space.subspan(variable.offset, variable.size);
    }
    return {};
  }

  std::shared_ptr<const Graph> graph_;
  const v1::Loss loss_;
  const std::vector<v1::Metric> metrics_;
  const LossPlan plan_;
  int64_t examples_ = 0;
  std::vector<Activations> nodes_;
};

}  // namespace cairn
