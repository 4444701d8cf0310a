// StepPushes: the exchange of a synchronous job's current step with the partitions: the pushes of own subtrees of the
// summation tree, the CLIPs that follow (step_clips.h), and which partitions have made the step's update.
//
// Part of SynchronousMode. Invariants:
//   1. The pushes cover the own replicas, in order: each replica is in exactly one.
//   2. At most one copy of a push to a partition is in flight, and none once the partition is done or has sent its
//      share of the norms.
//   3. The first answer that shows the step's update makes a partition done; it is sent nothing more in this step.
//   4. All partitions that are done name the same loss scale for the next step, or the job fails.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/limits.h"
#include "common/tensor/summation_tree.h"
#include "worker/core/own_replicas.h"
#include "worker/core/replica_context.h"
#include "worker/core/running_step.h"
#include "worker/core/step_clips.h"
#include "worker/limits.h"

namespace cairn::replica {

// A subtree whose sum is sent as one push per partition.
struct StepPush {
  TreeNode node;
  uint64_t examples = 0;
  size_t own_begin = 0;            // its replicas are [own_begin, own_begin + node.count) of OwnReplicas
  std::vector<Request> requests;   // by partition; kIdle: not sent, lost or answered
  std::vector<int32_t> summed_in;  // by partition: the member (from own_begin) that holds the sum; -1: not summed yet
};

// What a mode decides about pushes.
class PushRules {
 public:
  virtual ~PushRules() = default;
  // The subtrees to push, made of these replicas (ascending).
  virtual std::vector<TreeNode> NodesOf(const std::vector<uint32_t>& held) const = 0;
  virtual Frame MakePush(StepPush& push, uint32_t partition) = 0;
  // The replica's gradients in these partitions became final, and were pushed unless the push waits for other replicas.
  virtual void OnPushed(OwnReplica& /*own*/, uint32_t /*partition_begin*/, uint32_t /*partition_end*/) {}
  // Checks an answer to a push or a CLIP that shows an update against what was asked for.
  virtual absl::Status CheckAnswer(const Frame& frame, uint32_t partition) const = 0;
  virtual void OnPushFailed(StepPush& push, uint32_t partition, const absl::Status& status) = 0;
  // The ps no longer has the sum of the partition, or has a different one.
  virtual void OnSumLost(uint32_t partition) = 0;
};

class StepPushes {
 public:
  // by_layer: the answers carry no values. The constructor does not call `rules`.
  StepPushes(Context& context, const RunningStep& step, OwnReplicas& replicas, PushRules& rules, bool by_layer)
      : context_(context), step_(step), replicas_(replicas), rules_(rules), clips_(context, kClipOwner, by_layer) {}

  // A new step begins: nothing is pushed, no partition is done.
  void Begin();
  void Stop();
  // Makes the pushes for the current own replicas and sends what is ready. Nodes that existed before keep their state.
  // A replica whose gradient was added to a sum that is no longer needed is computed again.
  void Build();

  // Sends what is ready: of the replica's push, of all pushes, or to one partition.
  void SendReady(const OwnReplica& own);
  void SendAllReady();
  void SendReady(uint32_t partition);
  // The replica's gradient is final in these partitions; that of kFiguresPartition is pushed once Computed has come.
  void PushFinal(OwnReplica& own, uint32_t partition_begin, uint32_t partition_end);
  // The joint's sum is final in these partitions.
  void OnSummed(const GradientSummed& event);

  enum class Answer {
    kIgnored,  // stale, an error that is retried, or the first half of a clipped push
    kGone,     // the job was rolled back to an earlier step
    kBeyond,   // own replicas were computed elsewhere, and the job has moved on
    kUpdated,  // the frame shows the step's update; the partition is done
  };
  // The answer to a push or a CLIP.
  Answer OnReply(RequestName name, Reply& reply);

  // After an assignment: sends CLIPs again. A sum at a former primary is lost.
  void ResendClips(const std::vector<char>& moved, bool raised);
  // Sends the same pushes again, for modes that keep the gradients.
  void ResendPushes(const std::vector<char>& moved, bool raised);
  // For modes that do not keep them: forgets pushes sent to partitions that moved. Returns whether there were any.
  bool ForgetMoved(const StepPush& push, const std::vector<char>& moved);
  void ResendDue();

  const std::vector<StepPush>& all() const { return pushes_; }
  bool AllDone() const { return done_count_ == context_.assignment.parts.size(); }
  // Named by the partitions that are done; valid where AllDone().
  float next_loss_scale() const { return next_loss_scale_; }

 private:
  // The owner in the names of CLIP requests; the owner of a push is its first replica's number + 1.
  static constexpr uint32_t kClipOwner = kOwnersMax - 1;
  static_assert(kReplicasMax < static_cast<int32_t>(kClipOwner));

  StepPush& PushOf(const OwnReplica& own);
  void SendReady(StepPush& push);
  void TrySend(StepPush& push, uint32_t partition);
  void Send(StepPush& push, uint32_t partition);
  // push: the answered one; null: the answer is to a CLIP.
  Answer OnAnswer(Request& request, StepPush* push, uint32_t partition, Reply& reply);
  Answer OnRefused(Request& request, StepPush* push, uint32_t partition, const absl::Status& status);
  Answer OnUpdate(const Frame& frame, uint32_t partition, const std::vector<uint32_t>& known);
  void LoseSum(uint32_t partition);

  Context& context_;
  const RunningStep& step_;
  OwnReplicas& replicas_;
  PushRules& rules_;
  StepClips clips_;
  std::vector<StepPush> pushes_;
  std::vector<char> done_;  // by partition
  size_t done_count_ = 0;
  float next_loss_scale_ = 0;
};

}  // namespace cairn::replica
