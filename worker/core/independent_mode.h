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
#include <utility>
#include <vector>

#include "common/model/clip_norm.h"
#include "common/model/penalty.h"
#include "worker/core/replica_context.h"

namespace cairn::replica {

class IndependentMode : public Mode {
 public:
  // Scopes of the whole parameter space. Empty where gradients are not clipped by norm and the job has no loss
  // scale.
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
  struct Own {
    enum class State { kPulling, kEvaluating, kWaiting, kComputing, kComputed, kFinished };  // kWaiting: epoch not open
    uint32_t unit = 0;
    State state = State::kPulling;
    int64_t step = -1;  // the next one to finish; -1: not known yet
    std::vector<Member> members;
    uint64_t examples = 0;               // of all members
    std::shared_ptr<const Joint> joint;  // of the step's members; its sum is the first member's gradient
    Buffer values, next;
    std::vector<Request> requests;   // by partition: a pull while pulling, else the push of `step`
    std::vector<int32_t> summed_in;  // by partition: the member whose buffer holds the sum; -1: not summed yet
    std::vector<char> filled;        // by partition: answered
    size_t filled_count = 0;
    std::vector<uint64_t> sequences;         // by partition, from the last pull
    std::vector<uint64_t> sequences_before;  // by partition, from the pull before that
    std::vector<uint64_t> versions;          // by partition: of `next` where filled, else of `values`
    uint64_t clock = 0;                      // bounded staleness: the pulls wait as a replica at this clock would
    int pull_attempts = 0;
    float loss_scale = 0, next_loss_scale = 0;  // of this step and the next one, as partition 0 says
    bool not_finite = false;                    // the step's gradient is not finite: every partition skips it
  };

  // ---- independent_mode_pulls.cc ----
  void StartPull(Own& own, absl::Duration pause);
  void OnPullReply(Own& own, uint32_t partition, Reply& reply);
  void OnAllPulled(Own& own);

  void BeginStep(Own& own);
  void Checkpoint();
  void StartCompute(Own& own);
  const Buffer& SumOf(Own& own, uint32_t partition);
  v1::EpochFigures FiguresOf(const Own& own) const;
  void CheckAndClip(Own& own);
  void TryPush(Own& own, uint32_t partition);
  void SendAgain(Own& own, uint32_t partition);  // the pull or the push
  void OnPushReply(Own& own, uint32_t partition, Reply& reply);
  void FinishStep(Own& own);
  void Release(Own& own);
  void SetUnits();
  // Both null: no member has this work.
  std::pair<Own*, Member*> FindWork(uint64_t work);

  Context& context_;
  const Clipping clipping_;
  std::vector<Own> own_;  // sorted by unit
};

}  // namespace cairn::replica
