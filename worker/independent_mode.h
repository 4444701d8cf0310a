// Asynchronous training: each own replica goes through its steps by itself (PARAMETER_SERVER; with staleness_bound s
// the ps holds back the answers for those that are more than s steps ahead).
//
// Part of ReplicaCore: its thread rule and its invariants 3, 4.
//
//   pulling ──all partitions──▶ [evaluating] ──▶ computing ──every partition answered──▶ next step
#pragma once

#include <cstdint>
#include <vector>

#include "worker/replica_context.h"

namespace cairn::replica {

class IndependentMode : public Mode {
 public:
  explicit IndependentMode(Context& context) : context_(context) {}

  void OnAssigned(const std::vector<char>& moved, bool raised) override;
  void OnReply(RequestName name, Reply& reply) override;
  void OnGradient(const GradientReady& event) override;
  void OnComputed(uint64_t work, BatchSums sums) override;
  void OnEvaluated(uint64_t work, const BatchSums& sums) override;
  void ResendDue() override;
  void OnCheckpointDone() override { Checkpoint(); }
  int64_t step() const override;
  bool Knows(uint64_t work) const override;

 private:
  struct Own {
    enum class State { kPulling, kEvaluating, kComputing, kComputed, kFinished };
    ReplicaId id;
    State state = State::kPulling;
    int64_t step = -1;  // next to finish; -1: not known yet
    uint64_t work = 0;
    uint64_t examples = 0;
    Buffer values, next, gradient;
    std::vector<Request> requests;  // by partition: a pull while pulling, else the push of `step`
    std::vector<char> ready;        // by partition: its gradient is final
    std::vector<char> filled;       // by partition: answered
    size_t filled_count = 0;
    std::vector<uint64_t> sequences;         // by partition, as pulled last
    std::vector<uint64_t> sequences_before;  // as pulled the time before
    uint64_t clock = 0;                      // bounded staleness: the pulls wait as a replica of this clock has to
    int pull_attempts = 0;
    BatchSums sums;
  };

  void StartPull(Own& own, absl::Duration pause);
  void OnPullReply(Own& own, uint32_t partition, Reply& reply);
  void OnAllPulled(Own& own);
  void BeginStep(Own& own);
  void Checkpoint();
  void StartCompute(Own& own);
  void TryPush(Own& own, uint32_t partition);
  void SendAgain(Own& own, uint32_t partition);  // the pull or the push
  void OnPushReply(Own& own, uint32_t partition, Reply& reply);
  void FinishStep(Own& own);
  void Release(Own& own);
  void ReportOpenStep(const Own& own);
  Own* FindWork(uint64_t work);

  Context& context_;
  std::vector<Own> own_;  // sorted by id
};

}  // namespace cairn::replica
