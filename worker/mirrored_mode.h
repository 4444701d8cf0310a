// Synchronous training: all own replicas compute one step from one version of the values (MIRRORED,
// MULTI_WORKER_MIRRORED, PARAMETER_SERVER with staleness 0).
//
// Part of ReplicaCore: its thread rule and its invariants 1, 2, 4.
//
// Where gradients are clipped by norms that span partitions (common/model/clip_norm.h) a push is answered by NORMS; when the shares of all
// partitions in a partition's norms are there, CLIP takes the factors to it, and is answered by the values. A ps that has lost the sum says
// ABORTED, and is pushed to again.
//
//   idle ──replicas──▶ pulling ──all partitions of one version──▶ running ──┐ next values complete: step + 1
//     ◀──none left──     ◀──────── somebody is beyond step + 1 ────         ◀┘
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/model/clip_norm.h"
#include "common/tensor/summation_tree.h"
#include "worker/replica_context.h"

namespace cairn::replica {

class MirroredMode : public Mode {
 public:
  explicit MirroredMode(Context& context) : context_(context) {}

  void OnAssigned(const std::vector<char>& moved, bool raised) override;
  void OnReply(RequestName name, Reply& reply) override;
  void OnGradient(const GradientReady& event) override;
  void OnComputed(uint64_t work, BatchSums sums) override;
  void OnEvaluated(uint64_t work, const BatchSums& sums) override;
  void ResendDue() override;
  void OnCheckpointDone() override;
  int64_t step() const override { return phase_ == Phase::kRunning ? step_ : -1; }
  bool Knows(uint64_t work) const override;

 private:
  enum class Phase { kIdle, kPulling, kRunning };

  struct Own {
    enum class State { kIdle, kEvaluating, kWaiting, kComputing, kComputed, kFinished };  // kWaiting: for the epoch
    ReplicaId id;
    State state = State::kIdle;
    uint64_t work = 0;  // of the present Compute or Evaluate
    uint64_t examples = 0;
    Buffer gradient;          // kComputing, kComputed; empty without examples
    std::vector<char> ready;  // by partition
    // Its gradient was added to another's, or may be on its way: it cannot be the start of another sum.
    bool touched = false;
    BatchSums sums;
  };
  // A subtree whose sum goes out as one push a partition.
  struct Push {
    TreeNode node;
    uint64_t examples = 0;
    size_t own_begin = 0;            // its replicas are own_[own_begin ...+ node.count]
    std::vector<Request> requests;   // by partition
    std::vector<int32_t> summed_in;  // by partition: the member (from own_begin) that holds the sum; -1: not summed yet
  };

  // ---- pulling ----
  void StartPull(absl::Duration pause);
  void SendPull(uint32_t partition);
  void OnPullReply(uint32_t partition, Reply& reply);
  void OnAllPulled();

  // ---- running ----
  void BeginStep();
  void Checkpoint();
  void OpenGate();
  void StartOwn(Own& own);
  void StartCompute(Own& own);
  void BuildPushes();
  void PushReady(Push& push);
  void TryPush(Push& push, uint32_t partition);
  Buffer& SumOf(Push& push, uint32_t partition);
  void SendPush(Push& push, uint32_t partition);
  void OnRunningReply(RequestName name, Reply& reply);
  // The partitions whose factors are known by what the frame tells of norms, if it tells anything.
  absl::StatusOr<std::vector<uint32_t>> TakeNorms(const Frame& frame, uint32_t partition);
  void SendClips(const std::vector<uint32_t>& known);
  void SendClip(uint32_t partition);
  void PushAgain(uint32_t partition);
  void SendAgain(uint32_t owner, uint32_t partition);
  void Fill(const Frame& frame);
  void FinishStep();

  void SetReplicas();
  void Release(Own& own);
  void ReportOpenStep(const Own& own);
  void GoIdle();
  Own* FindWork(uint64_t work);
  Push& PushOf(const Own& own);
  template <typename F>
  void ForEachRequest(F f);  // f(Request&, owner, partition)

  Context& context_;
  Phase phase_ = Phase::kIdle;
  int64_t step_ = 0;
  Buffer current_, next_;  // next_ is empty until its first partition is there
  std::vector<Own> own_;   // sorted by id
  std::vector<Push> pushes_;
  NormBook norms_;               // of the running step
  std::vector<Request> clips_;   // by partition; owner kClipOwner
  std::vector<char> filled_;  // by partition, in next_ (running) or current_ (pulling)
  size_t filled_count_ = 0;
  std::vector<Request> pulls_;
  std::vector<uint64_t> versions_;               // by partition, of what was pulled
  std::vector<std::optional<uint64_t>> wanted_;  // by partition
  int pull_attempts_ = 0;                        // since the last step
};

}  // namespace cairn::replica
