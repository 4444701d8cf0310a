// Synchronous training without the variables (CENTRAL_STORAGE): the values of a layer come just before it computes and
// go when it is done; a gradient goes to its ps as soon as it is ready, and its memory with it.
//
// Part of ReplicaCore: its thread rule. Invariants:
//   1. All values of step s are of version s: pulls ask for exactly it, which a partition that has made its update
//      already still has.
//   2. A partition's values are in memory while some work has asked for them more often than it has let go of them.
//   3. Own replicas are pushed one by one, whatever subtrees they make up: the first one's gradient does not wait in
//      memory for the last one's. The ps add up in the same tree, so that the bits are those of MirroredMode.
//      It asks for no values in the answers to pushes: nothing would keep them.
//   4. A gradient that is lost on its way is computed again; the values of its step are still to be had (1).
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "worker/core/synchronous_mode.h"

namespace cairn::replica {

class CentralMode : public SynchronousMode {
 public:
  explicit CentralMode(Context& context) : SynchronousMode(context, /*by_layer=*/true, /*spares=*/1) {}

  void OnWeightsWanted(const WeightsWanted& event) override;
  void OnWeightsDone(const WeightsDone& event) override;
  void OnWorkEnded(uint64_t work) override;

 private:
  // A partition's values, of version step_.
  struct Held {
    int users = 0;  // works that want it
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
  // Of one replica each; its joint is its gradient rounded, or summed over its pieces, where it was computed.
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

  std::vector<Held> held_;  // by partition; step_.values is the whole space, of which only what is held takes memory
  // By work, from its first wish on, and partition: how often it was asked for.
  std::map<uint64_t, std::vector<uint16_t>> uses_;
  std::map<ReplicaId, Request> again_;  // kWaiting: gradients of it were lost; to be computed again
};

}  // namespace cairn::replica
