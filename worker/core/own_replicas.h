// OwnReplicas: the replicas that this worker computes for a synchronous job, and how far each is in the running step.
//
// Part of SynchronousMode. Invariants:
//   1. One for each replica of the assignment, in ascending order of their ids.
//   2. A replica goes through the states in their order; Release takes it back to the first one from any of them.
//   3. A gradient buffer is in one replica's hands, or in the pool; it is taken when the replica begins to compute.
//   4. What belongs to an earlier Compute or Evaluate of a replica is not found by its number any more (Find).
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
    kEvaluating,  // the values before the step
    kWaiting,     // for the epoch to be opened
    kComputing,
    kComputed,
    kFinished,  // there is no further step
  };
  ReplicaId id;
  State state = State::kIdle;
  uint64_t work = 0;  // of the present Compute or Evaluate
  uint64_t examples = 0;
  std::shared_ptr<const Joint> joint;  // its gradient goes there; the sum of all is the gradient of the first of them
  Buffer gradient;          // kComputing, kComputed; empty without examples, and of all but the first of a joint
  std::vector<char> ready;  // by partition: the gradient there is final, and here
  // It was added to another's, or may be on its way, or is rounded: the gradient cannot be the start of another sum.
  bool touched = false;
  bool again = false;  // kComputing: to be computed again when that ends
  BatchSums sums;

  bool at_work() const { return state == State::kEvaluating || state == State::kComputing; }
};

class OwnReplicas {
 public:
  // by_layer: as Compute.
  OwnReplicas(Context& context, const RunningStep& step, bool by_layer)
      : context_(context), step_(step), by_layer_(by_layer) {}

  // Takes over the replicas of the assignment; those that stay go on with what they do. Returns those that left, which
  // the caller releases.
  std::vector<OwnReplica> Assign();
  // For the next step, or for good.
  void Release(OwnReplica& own);

  // Begins the running step: the validation before it, where one is due, else Compute.
  void Begin(OwnReplica& own);
  // Begins its computation, if there is one and the epoch is open. The caller pushes what is ready then: without
  // examples there is nothing to compute.
  void Compute(OwnReplica& own);
  // Joins the gradients of each node's replicas, where the node makes sums (Context::MakeJoint). Only for a step that
  // all own replicas begin together: who comes later, or computes again, brings a gradient of its own. nodes cover the
  // own replicas in order.
  void Join(const std::vector<TreeNode>& nodes);

  // Null: no present Compute or Evaluate has this number.
  OwnReplica* Find(uint64_t work);
  const OwnReplica* Find(uint64_t work) const;
  // The first of those whose gradients go to the joint; null: it is not wanted any more.
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
