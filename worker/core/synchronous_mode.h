// What the synchronous modes share: finding the step, the step of all own replicas from its validations to its figures,
// the pushes of their gradients and what they are answered with, and clipping by norms that span partitions.
//
// Part of ReplicaCore: its thread rule and its invariants 1, 2, 5, 6, 7. A mode says where values come from, which
// subtrees are pushed, and what is done about a gradient that did not arrive.
//
//   idle ──replicas──▶ finding the step ──────▶ running ──┐ every partition has made the update of our pushes: step + 1
//     ◀──none left──     ◀──── somebody is beyond step + 1 ────    ◀┘
//
// Where gradients are clipped by norms that span partitions (common/model/clip_norm.h) a push is answered by NORMS;
// when the shares of all partitions in a partition's norms are there, CLIP takes the factors to it, and is answered by
// the values. With backup_replicas the first partition of a norm's gets its CLIP before the others, which take over the
// factor that it applied. A ps that has another sum, or none, says ABORTED, and is pushed to again.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/limits.h"
#include "common/tensor/summation_tree.h"
#include "worker/core/replica_context.h"
#include "worker/core/step_clips.h"
#include "worker/core/step_finder.h"
#include "worker/limits.h"

namespace cairn::replica {

class SynchronousMode : public Mode {
 public:
  void OnAssigned(const std::vector<char>& moved, bool raised) override;
  void OnReply(RequestName name, Reply& reply) override;
  void OnGradient(const GradientReady& event) override;
  void OnSummed(const GradientSummed& event) override;
  void OnComputed(uint64_t work, BatchSums sums) override;
  void OnEvaluated(uint64_t work, const BatchSums& sums) override;
  void ResendDue() override;
  void OnCheckpointDone() override;
  int64_t step() const override { return phase_ == Phase::kRunning ? step_ : -1; }
  bool Knows(uint64_t work) const override;

 protected:
  enum class Phase { kIdle, kFinding, kRunning };

  struct Own {
    enum class State { kIdle, kEvaluating, kWaiting, kComputing, kComputed, kFinished };  // kWaiting: for the epoch
    ReplicaId id;
    State state = State::kIdle;
    uint64_t work = 0;  // of the present Compute or Evaluate
    uint64_t examples = 0;
    std::shared_ptr<const Joint> joint;  // its gradient goes there; the sum of all is the gradient of the first of them
    Buffer gradient;          // kComputing, kComputed; empty without examples, and of all but the first of a joint
    std::vector<char> ready;  // by partition: the gradient there is final, and here
    // It was added to another's, or may be on its way, or is rounded: the gradient cannot be the start of another sum.
    bool touched = false;
    bool anew = false;  // kComputing: to be computed again when that ends
    BatchSums sums;
  };
  // A subtree whose sum goes out as one push a partition.
  struct Push {
    TreeNode node;
    uint64_t examples = 0;
    size_t own_begin = 0;            // its replicas are own_[own_begin ...+ node.count]
    std::vector<Request> requests;   // by partition; kIdle: not sent, lost or answered
    std::vector<int32_t> summed_in;  // by partition: the member (from own_begin) that holds the sum; -1: not summed yet
  };

  // by_layer: as Compute. spares: buffers that are kept beside a gradient for each own replica.
  SynchronousMode(Context& context, bool by_layer, size_t spares)
      : context_(context),
        finder_(context, kValuesOwner),
        by_layer_(by_layer),
        spares_(spares),
        clips_(context, kClipOwner, by_layer) {}

  // ---- what a mode decides ----
  // Values of another step, or none, are wanted: values_ is to be written to.
  virtual void ForgetValues() = 0;
  virtual void OnFound(const Frame& /*frame*/) {}                     // the answer to a find
  virtual void OnAllFound() = 0;                                      // finder_ tells: Run, or ask again
  virtual void OnValues(uint32_t /*partition*/, Reply& /*reply*/) {}  // owner kValuesOwner, while running
  virtual void OnWorkBegins(uint64_t /*work*/) {}
  virtual std::vector<TreeNode> NodesOf(const std::vector<uint32_t>& held) const = 0;
  virtual bool joins() const { return false; }  // pushes may be of joints
  virtual Frame MakePush(Push& push, uint32_t partition) = 0;
  virtual void OnPushed(Own& /*own*/, uint32_t /*partition_begin*/, uint32_t /*partition_end*/) {
  }  // of gradients that became final
  // The answer to a push or a CLIP that shows an update: whether it is what was asked for; what becomes of it.
  virtual absl::Status CheckAnswer(const Frame& frame, uint32_t partition) const = 0;
  virtual void TakeValues(const Frame& /*frame*/) {}
  virtual void OnStepDone() {}
  virtual void OnPushFailed(Push& push, uint32_t partition, const absl::Status& status) = 0;
  // The ps has no sum of the partition any more, or another one.
  virtual void OnSumLost(uint32_t partition) = 0;
  // After an assignment, and when a time has come: what is sent again.
  virtual void Resend(const std::vector<char>& moved, bool raised) = 0;
  virtual void ResendMore() {}
  virtual void Release(Own& own);  // for the next step, or for good
  virtual void DropValues() = 0;   // idle

  // ---- finding the step: synchronous_mode_finding.cc ----
  void StartFinding(absl::Duration pause);
  void FindAnew();  // after a pause that grows
  void Run(uint64_t version);

  // ---- running ----
  void Checkpoint();
  void StartCompute(Own& own);
  void PushReady(Push& push);
  void PushFinal(Own& own, uint32_t partition_begin, uint32_t partition_end);
  void TryPush(Push& push, uint32_t partition);
  void SendPush(Push& push, uint32_t partition);
  Push& PushOf(const Own& own);
  bool AllDone() const { return done_count_ == context_.parts.size(); }

  // Owners of requests: for values, and of CLIPs; a push has its first replica's number + 1.
  static constexpr uint32_t kValuesOwner = 0, kClipOwner = kOwnersMax - 1;
  static_assert(kReplicasMax < static_cast<int32_t>(kClipOwner));

  Context& context_;
  Phase phase_ = Phase::kIdle;
  int64_t step_ = 0;
  Buffer values_;         // of step_
  std::vector<Own> own_;  // sorted by id
  std::vector<Push> pushes_;
  std::vector<char> done_;  // by partition: it is at step_ + 1
  float loss_scale_ = 0;    // of step_, where the job has one
  StepFinder finder_;

 private:
  void SetReplicas();
  void GoIdle();
  void OnFindReply(uint32_t partition, Reply& reply);
  void BeginStep();
  void OpenGate();
  void StartOwn(Own& own);
  std::vector<TreeNode> OwnNodes() const;
  void MakeJoints();
  void BuildPushes();
  void FinishStep();
  Own* FindWork(uint64_t work);

  // ---- answers: synchronous_mode_answers.cc ----
  void OnAnswer(Request& request, Push* push, uint32_t partition, Reply& reply);  // push: whose; null: a CLIP's
  void SumLost(uint32_t partition);

  const bool by_layer_;
  const size_t spares_;
  size_t done_count_ = 0;
  float next_loss_scale_ = 0;  // as the partitions that are done say, all the same
  StepClips clips_;            // of the running step
};

}  // namespace cairn::replica
