// NodeGroups: which nodes of a graph one operation computes together.
//
// An Activation goes with the layer before it, a ZeroPadding2D with the windows after it, a Rescaling with the input;
// layers that change nothing (Flatten; Dropout outside training) have no operation at all.
//
// Immutable; calls may come from any thread. Invariants:
//   1. A joined node's output is the value of its first input's node.
//   2. A node whose value something else reads too is not changed by one that joins it.
#pragma once

#include <vector>

#include "common/model/call_mode.h"
#include "common/model/graph.h"
#include "worker/backend/onednn/plan.h"

namespace cairn::onednn {

class NodeGroups {
 public:
  // graph outlives it.
  NodeGroups(const Graph& graph, const LossPlan& loss_plan, Mode mode);

  bool Joined(const Node& node) const { return joined_[node.id]; }  // computed by another node's operation, or by none
  const std::vector<int>& ReadersOf(const Node& node) const { return readers_[node.id]; }
  // Whether the node is computed as in training: it may not be in a step of training.
  bool Trains(const Node& node) const { return training_ && !InfersAlways(node); }

  Activation ActivationOf(const Node& node) const;  // LINEAR where the loss does it
  // Of the Activation layer that the node's operation computes, too, if its own is LINEAR.
  Activation ActivationWithJoined(const Node& node) const;
  // Whether an operation may apply it to its own output: backward must be able to take the derivative from there.
  bool Fusible(const Activation& activation) const;

  // The layer that the node's operation computes, too; null: none.
  const Node* JoinedActivationLayer(const Node& node) const { return JoinedReader(node, LayerKind::kActivation); }
  const Node* JoinedRescaling(const Node& input) const { return JoinedReader(input, LayerKind::kRescaling); }
  // The ZeroPadding2D before the node whose pads its window takes; null: none.
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
