// NodeGroups: which nodes of a graph are computed together, by the launches of one of them.
//
// An activation joins the layer before it. A batch normalization is joined by the Add and the relu after it, by the
// other batch normalization that the Add reads, and in training by the bias before it. A ZeroPadding2D joins the window
// after it. Flatten and Reshape only rename their input.
//
// Immutable; any thread. Invariant: the node that computes a joined node comes before it.
#pragma once

#include <vector>

#include "common/model/call_mode.h"
#include "common/model/graph.h"
#include "worker/backend/cudnn/lowering_options.h"

namespace cairn::cudnn {

struct Activation {
  v1::Activation kind = v1::LINEAR;
  float alpha = 0;  // ActivationAlpha
  bool linear() const { return kind == v1::LINEAR || kind == v1::ACTIVATION_UNSPECIFIED; }
  bool of_rows() const { return kind == v1::SOFTMAX || kind == v1::LOG_SOFTMAX || kind == v1::SPARSEMAX; }
  // Whether the derivative cannot be computed from f(x) and needs x.
  bool needs_input() const { return !of_rows() && !kernels::TellsDerivative(act()); }
  kernels::Act act() const { return linear() ? kernels::Act::kLinear : static_cast<kernels::Act>(kind); }
};

class NodeGroups {
 public:
  // Both outlive this.
  NodeGroups(const Graph& graph, const LoweringOptions& options);

  bool Joined(const Node& node) const { return joined_[node.id]; }  // it is computed with another node
  // For a joined node: the node that computes it and has the same output. For other nodes: the node itself.
  int ComputedBy(const Node& node) const { return computed_by_[node.id]; }
  const Node* OnlyReader(const Node& node) const;  // null: none, or several
  // Whether it is a batch normalization that is computed with the other one of its Add.
  bool NormalizedByOther(const Node& node) const;
  // Whether the node's bias is only added to the moving mean of the batch normalization after it: in training the
  // normalization subtracts it again, so it has no gradient.
  bool BiasGoesToNormalization(const Node& node) const;
  Activation ActivationOf(const Node& node) const;
  Activation JoinedActivation(const Node& node) const;  // its own, or that of the Activation layer that joined it
  // The window of the node, with the pads of a ZeroPadding2D that joined it; for volumes over their planes, and with
  // their depth.
  kernels::Window WindowOf(const Node& node) const;
  // Whether the node is computed as in training. In a training step some layers are computed as in inference.
  bool Trains(const Node& node) const { return options_.mode == Mode::kTrain && !InfersAlways(node); }
  // Whether a batch normalization uses the statistics of the batch; otherwise it uses the moving ones.
  bool TakesStatistics(const Node& node) const { return Trains(node) && node.trainable; }

 private:
  bool TakenByNormalization(const Node& node) const;  // it is an Add that joins a batch normalization before it
  bool TakesZeros(const Node& node) const;            // it is a max pooling after a ZeroPadding2D
  bool JoinsProducer(const Node& node) const;

  const Graph& graph_;
  const LoweringOptions& options_;
  std::vector<std::vector<int>> readers_;  // of each node
  std::vector<bool> joined_;
  std::vector<int> computed_by_;
};

}  // namespace cairn::cudnn
