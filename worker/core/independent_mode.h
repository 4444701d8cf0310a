// IndependentMode: asynchronous training, in which each unit goes through its steps by itself (PARAMETER_SERVER; with
// staleness_bound s the ps delays answers to units more than s steps ahead). A unit is a replica, or with local_sync: g
// a group of g replicas in lockstep. To the ps a group is one replica, whose gradient is the sum of its members'.
//
// Part of ReplicaCore, whose thread rule and invariants 3 and 4 apply to units. Clipping by norm applies to each push
// alone, so a gradient is sent only once it is complete.
//
//   pulling ──all partitions──▶ [evaluating] ──▶ computing ──every partition answered──▶ next step
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common/model/clip_norm.h"
#include "common/model/penalty.h"
#include "worker/core/replica_context.h"

namespace cairn::replica {

class IndependentMode : public Mode {
 public:
  // The scopes of the whole parameter space. Empty if gradients are not clipped by norm and the job has no loss scale.
  struct Clipping {
    std::vector<ClipScope> scopes;
    std::vector<PenaltyRange> penalties;  // their gradients are added before the norms are computed
  };
  IndependentMode(Context& context, Clipping clipping) : context_(context), clipping_(std::move(clipping)) {}

  void OnAssigned(const std::vector<char>& moved, bool raised) override;
  void OnReply(RequestName name, Reply& reply) override;
  void OnGradient(const GradientReady& event) override;
  void OnSummed(const GradientSummed& event) override;
  void OnComputed(uint64_t work, BatchSums sums) override;
  void OnEvaluated(uint64_t work, const BatchSums& sums) override;
  void ResendDue() override;
  void OnCheckpointDone() override { Checkpoint(); }
  int64_t step() const override;
  bool Knows(uint64_t work) const override;

 private:
  // A replica of a unit.
  struct Member {
    ReplicaId id;
    uint64_t work = 0;  // the current Compute or Evaluate; 0: none
    uint64_t examples = 0;
    Buffer gradient;          // empty without examples, and for all but the first member of a joint
    std::vector<char> ready;  // by partition: its gradient is final
    BatchSums sums;
  };
  // The exchange of a unit's current step with one partition.
  struct Exchange {
    Request request;         // a pull while pulling, else the push of the step
    int32_t summed_in = -1;  // the member whose buffer holds the sum; -1: not summed yet
    bool answered = false;
    uint64_t version = 0;   // of the partition's values: in `next` if answered, else in `current`
    uint64_t sequence = 0;  // from the last pull

    void BeginPush() {
      request = Request();
      summed_in = -1;
      answered = false;
    }
  };
  // The values of a step.
  struct StepValues {
    Buffer buffer;
    float loss_scale = 0;  // as partition 0 says
  };
  // The gradient of a unit's current step: the sum of its members'.
  struct StepGradient {
    uint64_t examples = 0;               // of all members
    std::shared_ptr<const Joint> joint;  // of the members; its sum is the first member's gradient
    bool not_finite = false;             // the ps skip the step
  };
  struct Unit {
    enum class State { kPulling, kEvaluating, kWaiting, kComputing, kComputed, kFinished };  // kWaiting: epoch not open
    uint32_t number = 0;
    State state = State::kPulling;
    int64_t step = -1;  // the next one to finish; -1: not known yet
    std::vector<Member> members;
    StepGradient gradient;
    StepValues current, next;
    std::vector<Exchange> exchanges;  // by partition; empty: the unit has not begun
    size_t answered = 0;              // how many exchanges are
    std::vector<uint64_t> pulled;     // by partition: the sequences of the pull before this one
    uint64_t clock = 0;               // bounded staleness: the pulls wait as a replica at this clock would
    int pull_attempts = 0;
  };

  // ---- independent_mode_pulls.cc ----
  void StartPull(Unit& unit, absl::Duration pause);
  void OnPullReply(Unit& unit, uint32_t partition, Reply& reply);
  void OnAllPulled(Unit& unit);

  void BeginStep(Unit& unit);
  void Checkpoint();
  void StartCompute(Unit& unit);
  const Buffer& SumOf(Unit& unit, uint32_t partition);
  v1::EpochFigures FiguresOf(const Unit& unit) const;
  void CheckAndClip(Unit& unit);
  void TryPush(Unit& unit, uint32_t partition);
  void SendAgain(Unit& unit, uint32_t partition);  // the pull or the push
  void OnPushReply(Unit& unit, uint32_t partition, Reply& reply);
  void FinishStep(Unit& unit);
  void Release(Unit& unit);
  void SetUnits();
  // Both null: no member has this work.
  std::pair<Unit*, Member*> FindWork(uint64_t work);

  Context& context_;
  const Clipping clipping_;
  std::vector<Unit> units_;  // sorted by number
};

}  // namespace cairn::replica
