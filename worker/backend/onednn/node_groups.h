// NodeGroups: which nodes of a graph are computed together by one operation.
//
// An Activation joins the layer before it, a ZeroPadding2D the windows after it, a Rescaling the input. Layers that
// change nothing (Flatten; Dropout outside training) have no operation.
//
// Immutable; any thread. Invariants:
//   1. The output of a joined node is the value of its first input's node.
//   2. A node joins another one only if nothing else reads a value that this would change.
#pragma once

#include <vector>

#include "common/model/call_mode.h"
#include "common/model/graph.h"
#include "worker/backend/onednn/plan.h"

namespace cairn::onednn {

class NodeGroups {
 public:
  // The graph outlives this.
  NodeGroups(const Graph& graph, const LossPlan& loss_plan, Mode mode);

  bool Joined(const Node& node) const { return joined_[node.id]; }  // computed by another node's operation, or by none
  const std::vector<int>& ReadersOf(const Node& node) const { return readers_[node.id]; }
  // Whether the node is computed as in training. In a training step some layers are computed as in inference.
  bool Trains(const Node& node) const { return training_ && !InfersAlways(node); }

  Activation ActivationOf(const Node& node) const;  // LINEAR if the loss computes it
  // The node's activation; if that is LINEAR, the one of the Activation layer that joined the node.
  Activation ActivationWithJoined(const Node& node) const;
  // Whether an operation may apply the activation to its own output: backward must get the derivative from the output.
  bool Fusible(const Activation& activation) const;

  // The Activation layer that joined the node; null: none.
  const Node* JoinedActivationLayer(const Node& node) const { return JoinedReader(node, LayerKind::kActivation); }
  const Node* JoinedRescaling(const Node& input) const { return JoinedReader(input, LayerKind::kRescaling); }
  // The ZeroPadding2D before the node that joined its window; null: none.
  const Node* JoinedPadding(const Node& node) const;

 private:
  bool JoinsProducer(const Node& node) const;
  const Node* JoinedReader(const Node& node, LayerKind kind) const;

  const Graph& graph_;
  const bool fused_loss_;
  const bool training_;
  std::vector<std::vector<int>> readers_;  // of each node
  std::vector<bool> joined_;
};

}  // namespace cairn::onednn
