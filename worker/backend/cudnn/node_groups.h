// NodeGroups: which nodes of a graph are computed together, by the launches of one of them.
//
// An activation goes with the layer before it; a batch normalization takes the Add and the relu behind it, another one
// that the Add reads, and in training the bias before it; ZeroPadding2D goes into the window that follows; Flatten and
// Reshape only rename.
//
// Immutable. Invariant: the node that computes a joined one comes before it.
#pragma once

#include <vector>

#include "common/model/call_mode.h"
#include "common/model/graph.h"
#include "worker/backend/cudnn/lowering_options.h"

namespace cairn::cudnn {

struct Activation {
  v1::Activation kind = v1::LINEAR;
  float alpha = 0;  // LEAKY_RELU's slope, ELU's alpha; not negative
  bool linear() const { return kind == v1::LINEAR || kind == v1::ACTIVATION_UNSPECIFIED; }
  bool softmax() const { return kind == v1::SOFTMAX; }
  // Whether the derivative needs x: f(x) does not tell it.
  bool needs_input() const {
    return kind == v1::GELU || kind == v1::GELU_TANH || kind == v1::SILU || kind == v1::SOFTPLUS;
  }
  kernels::Act act() const { return linear() ? kernels::Act::kLinear : static_cast<kernels::Act>(kind); }
};

class NodeGroups {
 public:
  // Both outlive it.
  NodeGroups(const Graph& graph, const LoweringOptions& options);

  bool Joined(const Node& node) const { return joined_[node.id]; }  // computed with another node
  // Of a node that is joined: the one whose output is its own, too. Of others: itself.
  int ComputedBy(const Node& node) const { return computed_by_[node.id]; }
  const Node* OnlyReader(const Node& node) const;  // null: none, or several
  // A batch normalization that the other one of its Add computes.
  bool NormalizedByOther(const Node& node) const;
  // In training a batch normalization takes away again what a bias before it adds: it is a part of the moving mean and
  // has no gradient.
  bool BiasGoesToNormalization(const Node& node) const;
  Activation ActivationOf(const Node& node) const;
  Activation JoinedActivation(const Node& node) const;  // its own, or that of the Activation layer that joined it
  // With the pads of a ZeroPadding2D before it; of volumes: over their planes, and their depth.
  kernels::Window WindowOf(const Node& node) const;
  // Whether the node is computed as in training: it may not be in a step of training.
  bool Trains(const Node& node) const { return options_.mode == Mode::kTrain && !InfersAlways(node); }
  // A batch normalization that takes its batch's statistics; the others have constant ones, the moving statistics.
  bool TakesStatistics(const Node& node) const { return Trains(node) && node.trainable; }

 private:
  bool TakenByNormalization(const Node& node) const;  // an Add that a batch normalization before it computes
  bool TakesZeros(const Node& node) const;            // a max pooling, of a ZeroPadding2D
  bool JoinsProducer(const Node& node) const;

  const Graph& graph_;
  const LoweringOptions& options_;
  std::vector<std::vector<int>> readers_;  // of each node
  std::vector<bool> joined_;
  std::vector<int> computed_by_;
};

}  // namespace cairn::cudnn
