// SynchronousMode: the base of the synchronous modes. It finds the job's step, and takes all own replicas through each
// step together, from their validations to their figures.
//
// Part of ReplicaCore, whose thread rule and invariants 1, 2, 5, 6 and 7 apply. A derived mode decides where values
// come from, which subtrees are pushed (PushRules), and how a lost gradient is replaced.
//
//   idle ──replicas──▶ finding the step ──────▶ running ──┐ every partition has made the update of our pushes: step + 1
//     ◀──none left──     ◀──── somebody is beyond step + 1 ────    ◀┘
#pragma once

#include <cstdint>
#include <vector>

#include "worker/core/own_replicas.h"
#include "worker/core/replica_context.h"
#include "worker/core/running_step.h"
#include "worker/core/step_finder.h"
#include "worker/core/step_pushes.h"

namespace cairn::replica {

class SynchronousMode : public Mode, protected PushRules {
 public:
  void OnAssigned(const std::vector<char>& moved, bool raised) override;
  void OnReply(RequestName name, Reply& reply) override;
  void OnGradient(const GradientReady& event) override;
  void OnSummed(const GradientSummed& event) override;
  void OnComputed(uint64_t work, BatchSums sums) override;
  void OnEvaluated(uint64_t work, const BatchSums& sums) override;
  void ResendDue() override;
  void OnCheckpointDone() override;
  int64_t step() const override { return phase_ == Phase::kRunning ? step_.number : -1; }
  bool Knows(uint64_t work) const override { return replicas_.Find(work) != nullptr; }

 protected:
  enum class Phase { kIdle, kFinding, kRunning };

  // by_layer: as in Compute. spares: pooled buffers in addition to one gradient per own replica.
  SynchronousMode(Context& context, bool by_layer, size_t spares)
      : context_(context),
        finder_(context, kValuesOwner),
        replicas_(context, step_, by_layer),
        pushes_(context, step_, replicas_, *this, by_layer),
        spares_(spares) {}

  // ---- what a mode decides ----
  // The values of the step are no longer needed: step_.values is about to be overwritten.
  virtual void ForgetValues() = 0;
  virtual void DropValues() = 0;                                      // the mode goes idle
  virtual void OnFound(const Frame& /*frame*/) {}                     // an answer to finder_
  virtual void OnAllFound() = 0;                                      // by the versions in finder_: Run, or ask again
  virtual void OnValues(uint32_t /*partition*/, Reply& /*reply*/) {}  // owner kValuesOwner, while running
  virtual void TakeValues(const Frame& /*frame*/) {}                  // from an answer that shows the step's update
  virtual void OnStepDone() {}
  virtual void OnStepBegins() {}
  // Retries: after a new assignment (Resend), and by time (ResendMore).
  virtual void Resend(const std::vector<char>& moved, bool raised) = 0;
  virtual void ResendMore() {}
  virtual void Release(OwnReplica& own) { replicas_.Release(own); }

  void FindAgain();  // after a growing back-off
  void Run(uint64_t version);

  static constexpr uint32_t kValuesOwner = 0;  // the owner of requests for values

  Context& context_;
  Phase phase_ = Phase::kIdle;
  RunningStep step_;
  StepFinder finder_;
  OwnReplicas replicas_;
  StepPushes pushes_;

 private:
  void AssignReplicas();
  void GoIdle();
  void StartFinding(absl::Duration pause);
  void OnFindReply(uint32_t partition, Reply& reply);
  void Checkpoint();
  void OpenGate();
  void BeginStep();
  void FinishStepIfDone();

  const size_t spares_;
};

}  // namespace cairn::replica
