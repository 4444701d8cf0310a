// CentralMode: synchronous training that keeps no variables on the worker (CENTRAL_STORAGE). A layer's values are
// pulled just before it computes and dropped afterwards; a gradient is pushed once ready, and its memory freed.
//
// Part of ReplicaCore, whose thread rule applies. Invariants:
//   1. All values of step s are of version s. A pull asks for exactly that version; a partition that has already made
//      its next update still has it.
//   2. A partition's values are in memory while some work has more WeightsWanted than WeightsDone events for it.
//   3. Each own replica is pushed by itself, even where several form a subtree, so that the first gradient does not
//      stay in memory until the last is ready. The ps sum in the same tree: the bits are those of MirroredMode.
//      Pushes ask for no values in their answers, since the worker would not keep them.
//   4. A gradient lost in flight is computed again; the values of its step are still available (1).
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "worker/core/synchronous_mode.h"

namespace cairn::replica {

class CentralMode : public SynchronousMode {
 public:
  explicit CentralMode(Context& context) : SynchronousMode(context, /*by_layer=*/true, /*spares=*/1) {
    context.pool.KeepPrivate();
  }

  void OnWeightsWanted(const WeightsWanted& event) override;
  void OnWeightsDone(const WeightsDone& event) override;
  void OnWorkEnded(uint64_t work) override;

 private:
  // A partition's values, of version step_.
  struct Held {
    int users = 0;  // works that use it
    bool here = false;
    Request pull;
  };

  // ---- values ----
  void ForgetValues() override;
  void OnAllFound() override;
  void OnValues(uint32_t partition, Reply& reply) override;
  void OnStepDone() override { ForgetValues(); }
  void DropValues() override;
  void SendPull(uint32_t partition);
  void LetGo(uint32_t partition);

  // ---- gradients ----
  // One node per replica; its joint holds the gradient, rounded or summed over its pieces where it was computed.
  std::vector<TreeNode> NodesOf(const std::vector<uint32_t>& held) const override;
  Frame MakePush(StepPush& push, uint32_t partition) override;
  void OnPushed(OwnReplica& own, uint32_t partition_begin, uint32_t partition_end) override;
  absl::Status CheckAnswer(const Frame& frame, uint32_t partition) const override;
  void OnPushFailed(StepPush& push, uint32_t partition, const absl::Status& status) override;
  void OnSumLost(uint32_t partition) override;
  void Resend(const std::vector<char>& moved, bool raised) override;
  void ResendMore() override;
  void Release(OwnReplica& own) override;
  void ComputeAgain(OwnReplica& own);

  std::vector<Held> held_;  // by partition; step_.values spans the whole space, but only held partitions take memory
  // By work (from its first WeightsWanted) and partition: the requests that are not released yet.
  std::map<uint64_t, std::vector<uint16_t>> uses_;
  std::map<ReplicaId, Request> again_;  // kWaiting: gradients of the replica were lost and must be recomputed
};

}  // namespace cairn::replica
