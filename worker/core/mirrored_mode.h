// Synchronous training with the values in memory (MIRRORED, MULTI_WORKER_MIRRORED, PARAMETER_SERVER with staleness 0).
//
// Part of ReplicaCore, whose thread rule and invariants 2 and 4 apply. The answers to a step's pushes carry the values
// of the next step, which are collected in a second buffer.
#pragma once

#include <vector>

#include "worker/core/synchronous_mode.h"

namespace cairn::replica {

class MirroredMode : public SynchronousMode {
 public:
  explicit MirroredMode(Context& context) : SynchronousMode(context, /*by_layer=*/false, /*spares=*/3) {}

  void OnAssigned(const std::vector<char>& moved, bool raised) override;

 private:
  void ForgetValues() override;
  void OnFound(const Frame& frame) override { context_.frames.CopyValues(frame, step_.values); }
  void OnAllFound() override;
  std::vector<TreeNode> NodesOf(const std::vector<uint32_t>& held) const override;
  Frame MakePush(StepPush& push, uint32_t partition) override;
  absl::Status CheckAnswer(const Frame& frame, uint32_t partition) const override;
  void TakeValues(const Frame& frame) override;
  void OnStepDone() override;
  void OnStepBegins() override { TakeDigestIfDue(); }
  void OnPushFailed(StepPush& push, uint32_t partition, const absl::Status& status) override;
  void OnSumLost(uint32_t partition) override { pushes_.SendReady(partition); }
  void Resend(const std::vector<char>& moved, bool raised) override { pushes_.ResendPushes(moved, raised); }
  void DropValues() override { step_.values = next_ = Buffer(); }

  void TakeDigestIfDue();
  Buffer& SumOf(StepPush& push, uint32_t partition);

  Buffer next_;           // empty until its first partition arrives
  int64_t digested_ = 0;  // the step of the last digest of these values
};

}  // namespace cairn::replica
