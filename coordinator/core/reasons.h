// Reasons: tells users why a job waits, or what is wrong with a job that runs (JobStatus.reason).
//
// Not thread-safe; one core owns it. Invariants:
//   1. The reason of a job that has started dates from its last ReasonDue, or the last Tick.
//   2. Queued jobs that wait for the same thing have the same reason; reasons are computed once a second, and after
//      each look at the queue.
#pragma once

#include <string>

#include "coordinator/core/component.h"
#include "coordinator/core/copies.h"
#include "coordinator/core/endings.h"
#include "coordinator/core/evaluations.h"

namespace cairn {

class Reasons : Component {
 public:
  Reasons(Ground& ground, const Endings& endings, const Copies& copies, const Evaluations& evaluations)
      : Component(ground), endings_(endings), copies_(copies), evaluations_(evaluations) {}

  void Note(QueueLookedAt) { queue_due_ = true; }
  std::string Reason(const Job& job) const;
  // Why a queued job could not start at once; empty: it could, if no other one is started before it.
  std::string Obstacle(const Job& job) const;
  // For a job that has not ended.
  void Update(Job& job);
  // Updates all queued jobs, if the queue was looked at since the last time.
  void UpdateQueuedIfDue();

 private:
  std::string QueuedReason(const Job& job) const;
  std::string KeepReason(const Job& job) const;
  std::string WarningText(const Job& job) const;
  void UpdateQueued();
  void Set(Job& job, std::string reason);

  const Endings& endings_;
  const Copies& copies_;
  const Evaluations& evaluations_;
  bool queue_due_ = false;
  absl::Time queue_at_ = absl::InfinitePast();  // when queued jobs are updated in any case
};

}  // namespace cairn
