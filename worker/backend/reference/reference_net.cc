#include "worker/backend/reference/reference_net.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/activity.h"
#include "common/model/call_mode.h"
#include "common/model/model_inputs.h"
#include "worker/backend/fusion.h"

namespace cairn {

ReferenceNet::ReferenceNet(std::shared_ptr<const Graph> graph, const v1::Loss& loss, std::vector<v1::Metric> metrics,
                           absl::Span<const v1::ClassWeight> class_weights, std::vector<JoinedOutput> outputs)
    : graph_(WithActivityLayers(std::move(graph))),
      loss_(loss),
      metrics_(std::move(metrics)),
      plan_(outputs.empty() ? PlanLoss(*graph_, loss_, class_weights) : LossPlan()),
      outputs_loss_(std::move(outputs)),
      nodes_(graph_->nodes().size()) {}

absl::Status ReferenceNet::CheckArguments(const Batch& batch, size_t values, size_t gradients) const {
  const size_t space = static_cast<size_t>(graph_->space_size());
  if (values != space || (gradients != 0 && gradients != space)) {
    return absl::InvalidArgumentError("values and gradients must be the whole parameter space");
  }
  const int64_t inputs = batch.examples * ModelInputSize(*graph_);
  if (batch.examples < 1 || batch.input_numbers() < inputs) {
    return absl::InvalidArgumentError(absl::StrCat("a batch of ", batch.examples, " examples with ",
                                                   batch.input_numbers(), " numbers; the model needs ", inputs));
  }
  return absl::OkStatus();
}

absl::StatusOr<BatchSums> ReferenceNet::TrainStep(const Batch& batch, const StepInfo& info,
                                                  absl::Span<const double> values, absl::Span<double> gradients) {
  CAIRN_RETURN_IF_ERROR(CheckArguments(batch, values.size(), gradients.size()));
  CAIRN_RETURN_IF_ERROR(Forward(batch, &info, values));
  Activations& last = nodes_.back();
  last.gradient.assign(last.output.size(), 0.0);
  CAIRN_ASSIGN_OR_RETURN(BatchSums sums, Score(batch, absl::MakeSpan(last.gradient)));
  if (!gradients.empty()) Backward(values, gradients);
  return sums;
}

absl::StatusOr<BatchSums> ReferenceNet::Evaluate(const Batch& batch, absl::Span<const double> values) {
  CAIRN_RETURN_IF_ERROR(CheckArguments(batch, values.size(), 0));
  CAIRN_RETURN_IF_ERROR(Forward(batch, nullptr, values));
  return Score(batch, {});
}

absl::StatusOr<std::vector<double>> ReferenceNet::Predict(const Batch& batch, absl::Span<const double> values) {
  CAIRN_RETURN_IF_ERROR(CheckArguments(batch, values.size(), 0));
  CAIRN_RETURN_IF_ERROR(Forward(batch, nullptr, values));
  std::vector<double> outputs = nodes_.back().output;
  outputs_loss_.Activate<double>(absl::MakeSpan(outputs));
  return outputs;
}

uint64_t ReferenceNet::memory_bytes() const {
  uint64_t numbers = 0;
  for (const Activations& a : nodes_) numbers += a.before.size() + a.output.size() + a.gradient.size();
  return numbers * sizeof(double);
}

absl::StatusOr<BatchSums> ReferenceNet::Score(const Batch& batch, absl::Span<double> gradient) {
  const Activations& last = nodes_.back();
  const absl::Span<const float> step_mask =
      plan_.mask < 0 ? absl::Span<const float>() : absl::MakeConstSpan(nodes_[plan_.mask].steps);
  BatchSums sums;
  if (!outputs_loss_.empty()) {
    CAIRN_RETURN_IF_ERROR(outputs_loss_.Compute<double>(batch.examples, last.output, batch.labels.floats(),
                                                        batch.label_size, gradient, &sums));
  } else {
    CAIRN_RETURN_IF_ERROR(LossAndMetrics<double>(loss_, plan_, metrics_,
                                                 {.examples = batch.examples,
                                                  .outputs = plan_.fused ? last.before : last.output,
                                                  .labels = batch.labels.floats(),
                                                  .label_size = batch.label_size,
                                                  .step_mask = step_mask},
                                                 gradient, &sums));
  }
  for (const Node& node : graph_->nodes()) {
    if (node.kind != LayerKind::kActivityRegularization) continue;
    const ActivityFactors f = ActivityFactorsOf(node);
    for (const double x : nodes_[node.id].output) sums.loss += f.l1 * std::abs(x) + f.l2 * x * x;
  }
  return sums;
}

// ---- forward ----

// Takes the node's columns of each example.
void ReferenceNet::TakeInput(const Batch& batch, const Node& node, std::vector<double>* output) const {
  const int64_t example = ModelInputSize(*graph_), numbers = NumElements(node.output);
  output->clear();
  for (int64_t n = 0; n < examples_; ++n) {
    const int64_t begin = n * example + node.input_offset;
    for (int64_t i = begin; i < begin + numbers; ++i) {
      output->push_back(batch.element == Element::kByte ? double{static_cast<double>(batch.inputs.data()[i])}
                                                        : double{batch.inputs.floats()[i]});
    }
  }
}

absl::Status ReferenceNet::Forward(const Batch& batch, const StepInfo* training, absl::Span<const double> values) {
  examples_ = batch.examples;
  for (size_t id = 0; id < nodes_.size(); ++id) {
    const Node& node = graph_->nodes()[id];
    Activations& here = nodes_[id];
    if (node.kind == LayerKind::kInput) {
      TakeInput(batch, node, &here.output);
      continue;
    }
    here.before.assign(examples_ * NumElements(node.output), 0.0);
    const StepInfo* const step = InfersAlways(node) ? nullptr : training;
    const reference::Pass pass(*graph_, node, examples_, step, {values, {}, {}}, &nodes_);
    CAIRN_RETURN_IF_ERROR(reference::FindLayer(node.kind)->forward(pass));
    here.output.assign(here.before.size(), 0.0);
    reference::Activate({node.activation, ActivationAlpha(node), node.output.back()}, here.before,
                        absl::MakeSpan(here.output));
  }
  return absl::OkStatus();
}

// ---- backward ----

void ReferenceNet::Backward(absl::Span<const double> values, absl::Span<double> gradients) {
  std::fill(gradients.begin(), gradients.end(), 0.0);
  for (size_t id = 0; id + 1 < nodes_.size(); ++id) nodes_[id].gradient.assign(nodes_[id].output.size(), 0.0);
  for (size_t id = nodes_.size(); id-- > 1;) {
    const Node& node = graph_->nodes()[id];
    if (node.kind == LayerKind::kInput) continue;
    const Activations& here = nodes_[id];
    std::vector<double> before = here.gradient;
    if (!(plan_.fused && id + 1 == nodes_.size())) {
      reference::ActivateBackward({node.activation, ActivationAlpha(node), node.output.back()}, here.before,
                                  here.output, here.gradient, absl::MakeSpan(before));
    }
    const reference::Pass pass(*graph_, node, examples_, nullptr, {values, gradients, before}, &nodes_);
    reference::FindLayer(node.kind)->backward(pass);
  }
  for (const Variable& v : graph_->variables()) {
    if (v.kind != VariableKind::kFrozen) continue;
    const absl::Span<double> frozen = gradients.subspan(v.offset, v.size);
    std::fill(frozen.begin(), frozen.end(), 0.0);
  }
}

}  // namespace cairn
