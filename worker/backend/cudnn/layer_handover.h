// LayerHandover: what the lowering of a layer leaves for layers that are lowered later.
//
// Part of Builder: used by one thread while a plan is built. Whatever is left here stays until the plan is built.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "common/model/graph.h"
#include "worker/backend/cudnn/plan.h"

namespace cairn::cudnn {

struct Value;

// A batch normalization; a launch computes one or two of them.
struct Normalization {
  Value* in = nullptr;  // null: there is none
  Ref x, mean, variance, scale, offset;
  Ref dgamma, dbeta;  // backward
  float epsilon = 0;
  kernels::Normalized At(const Run& r) const;
  std::vector<Ref> Reads() const { return {x, mean, variance, scale, offset}; }
};

class LayerHandover {
 public:
  // The graph outlives this.
  explicit LayerHandover(const Graph& graph) : graph_(graph) {}

  // Which steps of the node's output count: float32 [examples, steps] of 1 and 0; none: all. The node that makes a mask
  // sets it.
  Ref StepMaskOf(int node) const {
    const int maker = graph_.nodes()[node].mask;
    return maker < 0 ? Ref{} : step_masks_.at(maker);
  }
  void SetStepMask(const Node& node, const Ref& mask) { step_masks_[node.id] = mask; }

  // A batch normalization that is computed with the other one of its Add (NodeGroups::NormalizedByOther).
  void Postpone(const Node& node, const Normalization& normalization) { postponed_[node.id] = normalization; }
  // Null: that node was not postponed.
  const Normalization* FindPostponed(int node) const {
    const auto found = postponed_.find(node);
    return found == postponed_.end() ? nullptr : &found->second;
  }

  // The pixels of a value that a pointwise window with these strides reads, shared by all such windows; null: not made
  // yet.
  Value*& ThinnedAt(Value* in, int64_t row_stride, int64_t column_stride) {
    return thinned_[{in, row_stride, column_stride}];
  }

  // Whether the node that has a variable by itself writes its gradient; others may share the variable with it.
  void SetOwnGradient(const Variable& variable) { own_gradients_.insert(variable.offset); }
  bool HasOwnGradient(const Variable& variable) const { return own_gradients_.count(variable.offset) > 0; }
  // The part of a shared variable's gradient that this node computes; none: not made yet.
  Ref& GradientPart(const Variable& variable, int node) { return gradient_parts_[variable.offset][node]; }
  // All parts, in the order of the nodes.
  std::vector<Ref> GradientParts(const Variable& variable) const {
    std::vector<Ref> parts;
    const auto found = gradient_parts_.find(variable.offset);
    if (found == gradient_parts_.end()) return parts;
    for (const auto& [node, part] : found->second) parts.push_back(part);
    return parts;
  }

  // What a layer adds to the loss: float64, one number for each example.
  void AddPenalty(const Ref& penalties) { penalties_.push_back(penalties); }
  const std::vector<Ref>& penalties() const { return penalties_; }

  // The inputs of a model with several, in float32, one example after the other; none: not made yet.
  Ref& inputs() { return inputs_; }

  // Keeps a node that is within another one, and not of the graph.
  const Node& Keep(Node node) { return *inner_nodes_.emplace_back(std::make_unique<Node>(std::move(node))); }

 private:
  const Graph& graph_;
  std::map<int, Ref> step_masks_;           // by the node that makes it
  std::map<int, Normalization> postponed_;  // by node
  std::map<std::tuple<Value*, int64_t, int64_t>, Value*> thinned_;
  std::set<int64_t> own_gradients_;                       // by the variable's offset
  std::map<int64_t, std::map<int, Ref>> gradient_parts_;  // by the variable's offset and by node
  std::vector<Ref> penalties_;
  Ref inputs_;
  std::vector<std::unique_ptr<Node>> inner_nodes_;
};

}  // namespace cairn::cudnn
