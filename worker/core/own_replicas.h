// OwnReplicas: the replicas that this worker computes for a synchronous job, and the state of each in the current step.
//
// Part of SynchronousMode. Invariants:
//   1. There is one entry for each replica of the assignment, in ascending order of ids.
//   2. A replica goes through the states in order; Release returns it to the first one from any state.
//   3. A gradient buffer belongs to one replica or to the pool; a replica takes one when it begins to compute.
//   4. Find does not find the number of an earlier Compute or Evaluate of a replica.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/tensor/summation_tree.h"
#include "worker/core/replica_context.h"
#include "worker/core/running_step.h"

namespace cairn::replica {

struct OwnReplica {
  enum class State {
    kIdle,
    kEvaluating,  // of the values before the step
    kWaiting,     // the epoch is not open yet
    kComputing,
    kComputed,
    kFinished,  // all steps are done
  };
  ReplicaId id;
  State state = State::kIdle;
  uint64_t work = 0;  // the current Compute or Evaluate
  uint64_t examples = 0;
  std::shared_ptr<const Joint> joint;  // set: the gradient is added there; the first replica of the joint holds the sum
  Buffer gradient;          // kComputing, kComputed; empty without examples, and for all but the first of a joint
  std::vector<char> ready;  // by partition: its gradient is final and in `gradient`
  // The gradient was added to another one, may be in flight, or is rounded: it cannot become the start of another sum.
  bool touched = false;
  bool again = false;  // kComputing: compute once more when the current Compute ends
  BatchSums sums;

  bool at_work() const { return state == State::kEvaluating || state == State::kComputing; }
};

class OwnReplicas {
 public:
  // by_layer: as in Compute.
  OwnReplicas(Context& context, const RunningStep& step, bool by_layer)
      : context_(context), step_(step), by_layer_(by_layer) {}

  // Takes over the replicas of the assignment; those that stay keep their state. Returns the removed ones, which the
  // caller must release.
  std::vector<OwnReplica> Assign();
  // Before the next step, or when the replica is removed.
  void Release(OwnReplica& own);

  // Begins the current step: with the validation before it where one is due, else with Compute.
  void Begin(OwnReplica& own);
  // Starts the computation if the step has one and the epoch is open. The caller then pushes what is ready: a replica
  // without examples has nothing to compute.
  void Compute(OwnReplica& own);
  // Joins the gradients of each node's replicas where the worker sums them (Context::MakeJoint). Only for a step that
  // all own replicas begin together: a replica that starts later or is recomputed gets a gradient of its own. `nodes`
  // cover the own replicas in order.
  void Join(const std::vector<TreeNode>& nodes);

  // Null: no current Compute or Evaluate has this number.
  OwnReplica* Find(uint64_t work);
  const OwnReplica* Find(uint64_t work) const;
  // The first replica of the joint; null: the joint is not needed any more.
  const OwnReplica* FindJoined(uint64_t joint) const;
  bool AnyAtWork() const;
  bool AnyWaiting() const;
  std::vector<uint32_t> Numbers() const;

  bool empty() const { return own_.empty(); }
  size_t size() const { return own_.size(); }
  OwnReplica& operator[](size_t place) { return own_[place]; }
  const OwnReplica& operator[](size_t place) const { return own_[place]; }
  size_t PlaceOf(const OwnReplica& own) const { return static_cast<size_t>(&own - own_.data()); }
  std::vector<OwnReplica>::iterator begin() { return own_.begin(); }
  std::vector<OwnReplica>::iterator end() { return own_.end(); }

 private:
  Context& context_;
  const RunningStep& step_;
  const bool by_layer_;
  std::vector<OwnReplica> own_;
};

}  // namespace cairn::replica
