// StepPushes: what the running step of a synchronous job exchanges with the partitions: the pushes of own subtrees of
// the summation tree, the CLIPs after them (step_clips.h), and which partitions have made the step's update.
//
// Part of SynchronousMode. Invariants:
//   1. The pushes cover the own replicas, in order: each replica is in exactly one.
//   2. A push to a partition is under way at most once at a time, and not at all once the partition is done or has told
//      its share of the norms.
//   3. A partition is done once, by the first answer that shows the step's update; nothing is wanted of it after that.
//   4. All partitions that are done name the same loss scale for the next step; the job fails where they do not.
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

// A subtree whose sum goes out as one push a partition.
struct StepPush {
  TreeNode node;
  uint64_t examples = 0;
  size_t own_begin = 0;            // its replicas are number own_begin ...+ node.count of OwnReplicas
  std::vector<Request> requests;   // by partition; kIdle: not sent, lost or answered
  std::vector<int32_t> summed_in;  // by partition: the member (from own_begin) that holds the sum; -1: not summed yet
};

// What a mode decides about pushes.
class PushRules {
 public:
  virtual ~PushRules() = default;
  // The subtrees that are pushed, of these replicas (ascending).
  virtual std::vector<TreeNode> NodesOf(const std::vector<uint32_t>& held) const = 0;
  virtual Frame MakePush(StepPush& push, uint32_t partition) = 0;
  // Gradients of own in the partitions became final, and were pushed where nothing else was waited for.
  virtual void OnPushed(OwnReplica& /*own*/, uint32_t /*partition_begin*/, uint32_t /*partition_end*/) {}
  // The answer to a push or a CLIP that shows an update: whether it is what was asked for.
  virtual absl::Status CheckAnswer(const Frame& frame, uint32_t partition) const = 0;
  virtual void OnPushFailed(StepPush& push, uint32_t partition, const absl::Status& status) = 0;
  // The ps has no sum of the partition any more, or another one.
  virtual void OnSumLost(uint32_t partition) = 0;
};

class StepPushes {
 public:
  // by_layer: the answers are wanted without values. rules is not called by the constructor.
  StepPushes(Context& context, const RunningStep& step, OwnReplicas& replicas, PushRules& rules, bool by_layer)
      : context_(context), step_(step), replicas_(replicas), rules_(rules), clips_(context, kClipOwner, by_layer) {}

  // Another step begins: nothing is pushed, no partition is done.
  void Begin();
  void Stop();
  // Makes the pushes for the present own replicas, and sends what is ready. Nodes that were there before keep what they
  // sent. A replica whose gradient went into a sum that is not wanted any more is computed again.
  void Build();

  // Sends what is ready of the pushes that the replica is in, or of all.
  void SendReady(const OwnReplica& own);
  void SendAllReady();
  void SendReady(uint32_t partition);
  // The gradient of own is final in these partitions; that of kFiguresPartition is pushed when all of it is computed.
  void PushFinal(OwnReplica& own, uint32_t partition_begin, uint32_t partition_end);
  // The joint's sum is final in these partitions.
  void OnSummed(const GradientSummed& event);

  enum class Answer {
    kIgnored,  // an old one, an error that is tried again, or the first half of a clipped push
    kGone,     // the job was taken back to an earlier step
    kBeyond,   // own replicas were computed elsewhere, and the job went on
    kUpdated,  // the frame shows the step's update; the partition is done
  };
  // The answer to a push or a CLIP.
  Answer OnReply(RequestName name, Reply& reply);

  // After an assignment. The CLIPs; a sum that was at a former primary is lost.
  void ResendClips(const std::vector<char>& moved, bool raised);
  // The same pushes again, for modes that keep the gradients.
  void ResendPushes(const std::vector<char>& moved, bool raised);
  // For modes that do not: forgets what was sent to partitions that moved. Whether there was any.
  bool ForgetMoved(const StepPush& push, const std::vector<char>& moved);
  void ResendDue();

  const std::vector<StepPush>& all() const { return pushes_; }
  bool AllDone() const { return done_count_ == context_.parts.size(); }
  // As the partitions that are done say; where AllDone().
  float next_loss_scale() const { return next_loss_scale_; }

 private:
  // The owner of CLIPs in the names of requests; a push has its first replica's number + 1.
  static constexpr uint32_t kClipOwner = kOwnersMax - 1;
  static_assert(kReplicasMax < static_cast<int32_t>(kClipOwner));

  StepPush& PushOf(const OwnReplica& own);
  void SendReady(StepPush& push);
  void TrySend(StepPush& push, uint32_t partition);
  void Send(StepPush& push, uint32_t partition);
  // push: whose answer it is; null: a CLIP's.
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
