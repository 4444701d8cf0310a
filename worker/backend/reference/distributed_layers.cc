// TimeDistributed: the inner layer on the whole input, or, if the steps are folded into the batch, on a batch of
// examples * steps (common/model/inner_node.h).
#include <algorithm>
#include <utility>
#include <vector>

#include "common/model/activation_numbers.h"
#include "common/model/call_mode.h"
#include "common/model/inner_node.h"
#include "worker/backend/dropout.h"
#include "worker/backend/reference/reference_layer.h"

namespace cairn::reference {
namespace {

// The inner layer on a batch of steps.
class Folded {
 public:
  explicit Folded(const Pass& p)
      : outer_(p), graph_(StepGraph(p.graph(), p.node())), values_(graph_.space_size()), nodes_(2) {
    for (size_t i = 0; i < p.node().variables.size(); ++i) {
      const In from = p.value(p.node().variables[i]);
      std::copy(from.begin(), from.end(), values_.begin() + graph_.variables()[i].offset);
    }
    nodes_[0].output = p.x();
    nodes_[0].gradient.assign(p.x().size(), 0.0);
  }

  // The outer node keeps all that the inner layer computed, and its output before and after its activation.
  absl::Status Forward() {
    Activations& here = nodes_[1];
    here.before.assign(outer_.y().size(), 0.0);
    StepInfo within;
    if (outer_.training() != nullptr) within = WithinLayer(*outer_.training(), outer_.node().id);
    const bool trains = outer_.training() != nullptr && !InfersAlways(node());
    CAIRN_RETURN_IF_ERROR(FindLayer(node().kind)->forward(PassOf(trains ? &within : nullptr, {}, {})));
    here.output.assign(here.before.size(), 0.0);
    Activate({node().activation, ActivationAlpha(node()), node().output.back()}, here.before,
             absl::MakeSpan(here.output));
    std::copy(here.output.begin(), here.output.end(), outer_.y().begin());
    outer_.here().mask = std::move(here.mask);
    outer_.here().kept = std::move(here.kept);
    outer_.here().kept.push_back(std::move(here.before));
    outer_.here().kept.push_back(std::move(here.output));
    return absl::OkStatus();
  }

  void Backward() {
    Activations& here = nodes_[1];
    here.mask = outer_.here().mask;
    here.kept = outer_.here().kept;
    for (std::vector<double>* last : {&here.output, &here.before}) {
      *last = std::move(here.kept.back());
      here.kept.pop_back();
    }
    std::vector<double> dy(outer_.dy().begin(), outer_.dy().end()), gradients(values_.size());
    ActivateBackward({node().activation, ActivationAlpha(node()), node().output.back()}, here.before, here.output,
                     outer_.dy(), absl::MakeSpan(dy));
    FindLayer(node().kind)->backward(PassOf(nullptr, absl::MakeSpan(gradients), dy));
    for (size_t i = 0; i < nodes_[0].gradient.size(); ++i) outer_.dx()[i] += nodes_[0].gradient[i];
    for (size_t v = 0; v < graph_.variables().size(); ++v) {
      const Variable& variable = graph_.variables()[v];
      // The gradient of a moving average is the batch's statistic times the number of examples; steps are not examples.
      const double share = variable.kind == VariableKind::kMovingAverage ? 1.0 / static_cast<double>(steps()) : 1.0;
      const Out to = outer_.gradient_of(outer_.node().variables[v]);
      for (int64_t i = 0; i < variable.size; ++i) to[i] += gradients[variable.offset + i] * share;
    }
  }

 private:
  const Node& node() const { return graph_.nodes()[1]; }
  int64_t steps() const { return outer_.shape()[0]; }
  Pass PassOf(const StepInfo* training, Out gradients, In dy) {
    return Pass(graph_, node(), outer_.examples() * steps(), training, {values_, gradients, dy}, &nodes_);
  }

  const Pass& outer_;
  const Graph graph_;
  std::vector<double> values_;
  std::vector<Activations> nodes_;
};

absl::Status Distribute(const Pass& p) {
  if (FoldsSteps(p.node())) return Folded(p).Forward();
  const Node inner = InnerNode(p.node());
  return FindLayer(inner.kind)->forward(p.As(inner));
}

void DistributeBackward(const Pass& p) {
  if (FoldsSteps(p.node())) return Folded(p).Backward();
  const Node inner = InnerNode(p.node());
  FindLayer(inner.kind)->backward(p.As(inner));
}

constexpr Layer kLayers[] = {{LayerKind::kTimeDistributed, Distribute, DistributeBackward},
                             {LayerKind::kSpectralNormalization, Distribute, DistributeBackward}};

}  // namespace

absl::Span<const Layer> DistributedLayers() { return kLayers; }

}  // namespace cairn::reference
