// Synchronous training without the variables (CENTRAL_STORAGE): the values of a layer come just before it computes and go
// when it is done; a gradient goes to its ps as soon as it is ready, and its memory with it.
//
// Part of ReplicaCore: its thread rule and its invariants 5, 6, 7. Beyond those:
//   1. All values of step s are of version s: pulls ask for exactly it, which a partition that has made its update
//      already still has.
//   2. A partition's values are in memory while some work has asked for them more often than it has let go of them.
//   3. Own replicas are pushed one by one, whatever subtrees they make up: the first one's gradient does not wait in
//      memory for the last one's. The ps add up in the same tree, so that the bits are those of MirroredMode.
//   4. A gradient that is lost on its way is computed again; the values of its step are still to be had (1).
//
// Clipping by norms that span partitions goes as in MirroredMode: NORMS, CLIP. A sum that a ps has lost is computed again.
//
//   idle --replicas--> finding the step --> running --+ every partition has made the update of our pushes: step + 1
//     <--none left--     <---- somebody is beyond step + 1 ----      <--+
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "common/model/clip_norm.h"
#include "worker/replica_context.h"

namespace cairn::replica {

class CentralMode : public Mode {
 public:
  explicit CentralMode(Context& context) : context_(context) {}

  void OnAssigned(const std::vector<char>& moved, bool raised) override;
  void OnReply(RequestName name, Reply& reply) override;
  void OnGradient(const GradientReady& event) override;
  void OnComputed(uint64_t work, BatchSums sums) override;
  void OnEvaluated(uint64_t work, const BatchSums& sums) override;
  void OnWeightsWanted(const WeightsWanted& event) override;
  void OnWeightsDone(const WeightsDone& event) override;
  void OnWorkEnded(uint64_t work) override;
  void ResendDue() override;
  void OnCheckpointDone() override;
  int64_t step() const override { return phase_ == Phase::kRunning ? step_ : -1; }
  bool Knows(uint64_t work) const override;

 private:
  enum class Phase { kIdle, kFinding, kRunning };

  struct Own {
    enum class State { kIdle, kEvaluating, kWaiting, kComputing, kComputed, kFinished };  // kWaiting: for the epoch
    ReplicaId id;
    State state = State::kIdle;
    uint64_t work = 0;  // of the present Compute or Evaluate
    uint64_t examples = 0;
    Buffer gradient;              // kComputing; empty without examples
    std::vector<Request> pushes;  // by partition; kIdle: not sent, lost or answered
    Request again;                // kWaiting: some were lost; to be computed anew
    bool anew = false;            // and its time has come while it computed
    BatchSums sums;
  };
  // A partition's values, of version step_.
  struct Held {
    int users = 0;  // works that want it
    bool here = false;
    Request pull;
  };

  // ---- finding the step ----
  void StartFinding(absl::Duration pause);
  void SendFind(uint32_t partition);
  void OnFound(uint32_t partition, Reply& reply);

  // ---- values ----
  void ForgetValues();
  void SendPull(uint32_t partition);
  void OnPulled(uint32_t partition, Reply& reply);
  void LetGo(uint32_t partition);

  // ---- running ----
  void BeginStep();
  void Checkpoint();
  void OpenGate();
  void StartOwn(Own& own);
  void StartCompute(Own& own);
  void Push(Own& own, uint32_t partition);
  void OnAnswer(Own* own, uint32_t partition, Reply& reply);  // own: whose push; null: a CLIP
  void Lost(Own& own, uint32_t partition, const absl::Status& status);
  void ComputeAgain(Own& own);
  void FinishStep();

  // ---- clipping by norms ----
  absl::StatusOr<std::vector<uint32_t>> TakeNorms(const Frame& frame, uint32_t partition);
  void SendClips(const std::vector<uint32_t>& known);
  void SendClip(uint32_t partition);
  void SumLost(uint32_t partition);

  void SetReplicas();
  void Release(Own& own);
  void StopWorkOf(const Own& own);
  void ReportOpenStep(const Own& own);
  void GoIdle();
  Own* FindWork(uint64_t work);
  Own* FindOwner(uint32_t owner);

  Context& context_;
  Phase phase_ = Phase::kIdle;
  int64_t step_ = 0;
  Buffer values_;           // the whole space, of which only what is held takes memory
  std::vector<Held> held_;  // by partition
  std::map<uint64_t, std::vector<uint16_t>> uses_;  // by work and partition: how often it was asked for
  std::vector<Own> own_;                            // sorted by id
  std::vector<char> done_;                          // by partition: it is at step_ + 1
  size_t done_count_ = 0;
  NormBook norms_;              // of the running step
  std::vector<Request> clips_;  // by partition
  std::vector<Request> finds_;  // by partition
  std::vector<uint64_t> versions_;
  size_t found_ = 0;
  int find_attempts_ = 0;  // since the last step
};

}  // namespace cairn::replica
