// Schedule: the queue, and how jobs start.
//
// Not thread-safe; one core owns it. Invariants:
//   1. A job starts only where it has the workers and ps that it asks for; later jobs do not overtake one that waits
//      for slots that others use.
//   2. The queue and the replicas of all jobs are looked at once a Step at most.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "coordinator/core/assignments.h"
#include "coordinator/core/component.h"
#include "coordinator/core/endings.h"
#include "coordinator/core/placement.h"

namespace cairn {

class Schedule : Component {
 public:
  Schedule(const Ground& ground, Endings& endings, Assignments& assignments)
      : Component(ground), endings_(endings), assignments_(assignments) {}

  void Note(QueueChanged) { queue_due_ = true; }
  void Note(SlotsChanged) { all_due_ = true; }
  void Tick();
  // Where something was noted since.
  void RunIfDue();

  // Fields whose default is what the cluster has, or a checkpoint; they stay 0 while it has nothing.
  void ResolveDefaults(Job& job);

 private:
  void Run(bool all);
  bool StartQueued();
  void StartJob(Job& job, std::vector<WorkerCapacity> workers);
  absl::Status LayOut(Job& job);
  std::vector<WorkerCapacity> FreeWorkers(const Job& job);

  Endings& endings_;
  Assignments& assignments_;
  bool all_due_ = false;                        // the queue, and who computes what of all jobs
  bool queue_due_ = false;                      // the queue alone
  bool someone_waits_ = false;                  // for slots that others use, or for nodes that are to come back
  bool settling_ = true;                        // at the last Tick
  absl::Time queue_at_ = absl::InfinitePast();  // when the queue is looked at in any case
};

}  // namespace cairn
