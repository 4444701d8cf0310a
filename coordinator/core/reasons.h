// Reasons: what a user is told of a job that waits, or that runs although something is wrong (JobStatus.reason).
//
// Not thread-safe; one core owns it. Invariants:
//   1. The reason of a job that has started is of the job as it was at the last ReasonDue, or at the last Tick.
//   2. Jobs that wait for the same thing have the same reason; it is computed once a second, and after the queue was
//      looked at.
#pragma once

#include <string>

#include "coordinator/core/component.h"
#include "coordinator/core/copies.h"
#include "coordinator/core/endings.h"
#include "coordinator/core/evaluations.h"

namespace cairn {

class Reasons : Component {
 public:
  Reasons(const Ground& ground, const Endings& endings, const Copies& copies, const Evaluations& evaluations)
      : Component(ground), endings_(endings), copies_(copies), evaluations_(evaluations) {}

  void Note(QueueLookedAt) { queue_due_ = true; }
  std::string Reason(const Job& job) const;
  // Of one that has not ended.
  void Update(Job& job);
  // Of all that wait, where the queue was looked at since.
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
  absl::Time queue_at_ = absl::InfinitePast();  // when they are looked at in any case
};

}  // namespace cairn
