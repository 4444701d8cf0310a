// Schedule: the queue, and how jobs start.
//
// Not thread-safe; one core owns it. Invariants:
//   1. A job starts only when the workers and ps that it asks for are there; later jobs do not overtake a job that
//      waits for slots in use.
//   2. The queue and the replicas of all jobs are examined at most once a Step.
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
  Schedule(Ground& ground, Endings& endings, Assignments& assignments)
      : Component(ground), endings_(endings), assignments_(assignments) {}

  void Note(QueueChanged) { queue_due_ = true; }
  void Note(SlotsChanged) { all_due_ = true; }
  void Tick();
  // Runs if anything was noted since the last run. In a large cluster the assignments of all jobs wait for a tick:
  // thousands of nodes may come back at the same time.
  void RunIfDue(bool tick);

  // Sets fields whose default depends on the cluster or on a checkpoint; they stay 0 while there is none.
  void ResolveDefaults(Job& job);
  // Determines steps, partitions and replicas of a job with data, but places none of them. Errors: INVALID_ARGUMENT.
  absl::Status LayOut(Job& job);

 private:
  void Run(bool all);
  bool StartQueued();
  void StartJob(Job& job, std::vector<WorkerCapacity> workers);
  std::vector<WorkerCapacity> FreeWorkers(const Job& job);

  Endings& endings_;
  Assignments& assignments_;
  bool all_due_ = false;                        // the queue, and the assignments of all jobs
  bool queue_due_ = false;                      // the queue only
  bool someone_waits_ = false;                  // for slots in use, or for nodes that may come back
  bool settling_ = true;                        // Nodes::Settling at the last Tick
  absl::Time queue_at_ = absl::InfinitePast();  // when the queue is examined in any case
};

}  // namespace cairn
