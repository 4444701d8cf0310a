// StepVariables: which variables the operation that is being compiled uses, and where their gradients go.
//
// Part of PlanBuilder. Invariants:
//   1. What is noted belongs to one step: Take is called after each forward and each backward pass of an operation has
//      been compiled.
//   2. The gradient of a variable that several nodes use is written by the last of them, whose backward pass is the
//      first to run; each of the others computes a part, which the plan adds to it.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/graph.h"
#include "worker/backend/onednn/plan.h"

namespace cairn::onednn {

class StepVariables {
 public:
  // The graph outlives this.
  explicit StepVariables(const Graph& graph);

  // The operation reads the variable's value.
  void NoteRead(const Variable& variable) { reads_.push_back(&variable); }
  // Whether the node computes only a part of the variable's gradient (invariant 2).
  bool IsPart(const Variable& variable, int node) const;
  void NotePart(const Variable& variable, Tensor* part) { parts_.push_back({part, variable.offset, variable.size}); }
  // Moves what was noted since the last call to the step.
  void Take(Plan::Step& step);

  // Sets Step.begin, end and gaps of all steps, for training.
  void SetRanges(std::vector<Plan::Step>& steps) const;

 private:
  const Graph& graph_;
  std::vector<const Variable*> reads_;
  std::vector<Plan::GradientPart> parts_;
  std::vector<int> last_users_;  // by variable: the last node that uses it, where several do; else -1
};

}  // namespace cairn::onednn
