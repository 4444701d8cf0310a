// What the synchronous modes share: finding the step, and the step of all own replicas together, from their validations
// to their figures.
//
// Part of ReplicaCore: its thread rule and its invariants 1, 2, 5, 6, 7. A mode says where values come from, which
// subtrees are pushed (PushRules), and what is done about a gradient that did not arrive.
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

  // by_layer: as Compute. spares: buffers that are kept beside a gradient for each own replica.
  SynchronousMode(Context& context, bool by_layer, size_t spares)
      : context_(context),
        finder_(context, kValuesOwner),
        replicas_(context, step_, by_layer),
        pushes_(context, step_, replicas_, *this, by_layer),
        spares_(spares) {}

  // ---- what a mode decides ----
  // Values of another step, or none, are wanted: step_.values is to be written to.
  virtual void ForgetValues() = 0;
  virtual void DropValues() = 0;                                      // idle
  virtual void OnFound(const Frame& /*frame*/) {}                     // the answer to a find
  virtual void OnAllFound() = 0;                                      // finder_ tells: Run, or ask again
  virtual void OnValues(uint32_t /*partition*/, Reply& /*reply*/) {}  // owner kValuesOwner, while running
  virtual void TakeValues(const Frame& /*frame*/) {}                  // of an answer that shows the step's update
  virtual void OnStepDone() {}
  // After an assignment, and when a time has come: what is sent again.
  virtual void Resend(const std::vector<char>& moved, bool raised) = 0;
  virtual void ResendMore() {}
  virtual void Release(OwnReplica& own) { replicas_.Release(own); }

  void FindAgain();  // after a pause that grows
  void Run(uint64_t version);

  static constexpr uint32_t kValuesOwner = 0;  // of requests for values

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
