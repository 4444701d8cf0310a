// Asynchronous training: each unit goes through its steps by itself (PARAMETER_SERVER; with staleness_bound s the ps
// holds back the answers for those that are more than s steps ahead). A unit is a replica, or with local_sync: g a
// group of g replicas in step with each other: to the ps it is one replica, whose gradient is the sum of theirs.
//
// Part of ReplicaCore: its thread rule and its invariants 3, 4, of units. Clipping by norm is of each push by itself: a
// gradient goes out when all of it is there.
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
  // clipping: what is of the whole parameter space; nothing where gradients are not clipped by norm, and the job has no
  // loss scale.
  struct Clipping {
    std::vector<ClipScope> scopes;
    std::vector<PenaltyRange> penalties;  // whose gradient is added before the norms are taken
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
    uint64_t work = 0;  // of the present Compute or Evaluate; 0: it is done
    uint64_t examples = 0;
    Buffer gradient;          // empty without examples, and of all but the first of a joint
    std::vector<char> ready;  // by partition: its gradient is final
    BatchSums sums;
  };
  struct Own {
    enum class State { kPulling, kEvaluating, kWaiting, kComputing, kComputed, kFinished };  // kWaiting: for the epoch
    uint32_t unit = 0;
    State state = State::kPulling;
    int64_t step = -1;  // next to finish; -1: not known yet
    std::vector<Member> members;
    uint64_t examples = 0;               // of all members
    std::shared_ptr<const Joint> joint;  // of the step's members; its sum is the first one's gradient
    Buffer values, next;
    std::vector<Request> requests;   // by partition: a pull while pulling, else the push of `step`
    std::vector<int32_t> summed_in;  // by partition: the member whose buffer holds the sum; -1: not added up yet
    std::vector<char> filled;        // by partition: answered
    size_t filled_count = 0;
    std::vector<uint64_t> sequences;         // by partition, as pulled last
    std::vector<uint64_t> sequences_before;  // as pulled the time before
    std::vector<uint64_t> versions;          // by partition, of `values`, and of `next` where it is filled
    uint64_t clock = 0;                      // bounded staleness: the pulls wait as a replica of this clock has to
    int pull_attempts = 0;
    float loss_scale = 0, next_loss_scale = 0;  // of the step, of the next one: what partition 0 says of it
    bool not_finite = false;                    // the step's gradient is not: every partition leaves it out
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
  // Both null: none has this work.
  std::pair<Own*, Member*> FindWork(uint64_t work);

  Context& context_;
  const Clipping clipping_;
  std::vector<Own> own_;  // sorted by unit
};

}  // namespace cairn::replica
