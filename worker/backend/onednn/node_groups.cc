#include "worker/backend/onednn/node_groups.h"

#include <algorithm>

#include "common/model/inner_node.h"
#include "worker/backend/affine.h"
#include "worker/backend/fusion.h"
#include "worker/backend/noise.h"

namespace cairn::onednn {

NodeGroups::NodeGroups(const Graph& graph, const LossPlan& loss_plan, Mode mode)
    : graph_(graph),
      fused_loss_(loss_plan.fused && mode != Mode::kPredict),
      training_(mode == Mode::kTrain),
      readers_(graph.nodes().size()),
      joined_(graph.nodes().size()) {
  for (const Node& node : graph.nodes()) {
    for (int input : node.inputs) readers_[input].push_back(node.id);
  }
  for (const Node& node : graph.nodes()) joined_[node.id] = JoinsProducer(node);
}

// Whether the node's output is the value of its input's node, either because it changes nothing or because that node's
// operation does its work.
bool NodeGroups::JoinsProducer(const Node& node) const {
  if (node.inputs.empty()) return false;
  const Node& producer = graph_.nodes()[node.inputs[0]];
  const bool alone = readers_[producer.id].size() == 1 && producer.id != graph_.output().id;
  if (DrawsNoise(node.kind)) return !Trains(node) || !NoiseOf(node).has_value();
  switch (node.kind) {
    case LayerKind::kFlatten: return true;
    case LayerKind::kTimeDistributed: {
      const Node inner = InnerNode(node);
      return inner.kind == LayerKind::kDropout && JoinsProducer(inner);
    }
    case LayerKind::kRescaling: return alone && producer.kind == LayerKind::kInput && !IsAffine(node);
    case LayerKind::kZeroPadding2D:
      return std::all_of(readers_[node.id].begin(), readers_[node.id].end(),
                         [&](int id) { return TakesPads(graph_.nodes()[id].kind); }) &&
             node.id != graph_.output().id;
    case LayerKind::kActivation: {
      if (IsFurtherActivation(node)) return false;
      const Activation activation = ActivationOf(node);
      if (activation.linear()) return true;
      if (!alone) return false;
      if (producer.kind == LayerKind::kBatchNormalization) return activation.kind == v1::RELU;
      return AppliesActivation(producer.kind) && !IsFurtherActivation(producer) && ActivationOf(producer).linear() &&
             Fusible(activation);
    }
    default: return false;
  }
}

Activation NodeGroups::ActivationOf(const Node& node) const {
  if (node.id == graph_.output().id && fused_loss_) return {};
  if (IsFurtherActivation(node)) return {};  // an operation of its own
  return {node.activation, node.activation == v1::ELU ? node.alpha : node.negative_slope};
}

bool NodeGroups::Fusible(const Activation& activation) const {
  return activation.elementwise() && !(training_ && activation.needs_input());
}

const Node* NodeGroups::JoinedReader(const Node& node, LayerKind kind) const {
  if (readers_[node.id].size() != 1) return nullptr;
  const Node& next = graph_.nodes()[readers_[node.id][0]];
  return next.kind == kind && Joined(next) ? &next : nullptr;
}

Activation NodeGroups::ActivationWithJoined(const Node& node) const {
  const Activation own = ActivationOf(node);
  const Node* const next = JoinedActivationLayer(node);
  return next != nullptr && own.linear() ? ActivationOf(*next) : own;
}

const Node* NodeGroups::JoinedPadding(const Node& node) const {
  const Node& producer = graph_.nodes()[node.inputs[0]];
  return producer.kind == LayerKind::kZeroPadding2D && Joined(producer) ? &producer : nullptr;
}

}  // namespace cairn::onednn
