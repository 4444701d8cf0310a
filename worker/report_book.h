// ReportBook: the figures of one worker's replicas of one job, gathered into few reports.
//
// One caller at a time. Invariants:
//   1. A report's steps are consecutive and of one epoch; each step is in one report only.
//   2. A report leaves at the latest `interval` after its first step,
//      at the end of its epoch, and before the replica leaves.
//   3. A step that was computed and whose answer did not come to this worker, and the first
//      step after such a one or of a replica that is new here, are reports of their own:
//      two workers may report that step, and the coordinator can leave one of them out.
//   4. `finished` is reported again every `finished_interval` until the replica leaves.
//   5. The figures of each replica's step, and of its share of a validation, are rounded once before they are added (exact_sum.h).
//   6. What was reported of the newest two epochs is kept, for a coordinator that was started anew: at most kKeptOfReplica reports a
//      replica; where there are more, neighbours are added up.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"
#include "common/base/ids.h"
#include "worker/backend/backend.h"

namespace cairn {

// Of asynchronous pushes: over partitions, updates between the values and the answer to the push, without the push itself.
struct Staleness {
  uint64_t sum = 0, count = 0, max = 0;
};

class ReportBook {
 public:
  static constexpr size_t kKeptOfReplica = 128;

  ReportBook(absl::Duration interval, absl::Duration finished_interval)
      : interval_(interval), finished_interval_(finished_interval) {}

  // The replica's step is acknowledged.
  void AddStep(ReplicaId replica, int64_t step, const BatchSums& sums, int64_t steps_per_epoch, absl::Time now,
               const Staleness& staleness = {});
  // The replica's step is computed and pushed, and this worker does not wait for the answer: it loses the replica, or
  // pulls anew.
  void AddOpenStep(ReplicaId replica, int64_t step, const BatchSums& sums, int64_t steps_per_epoch);
  void AddValidation(ReplicaId replica, int32_t epoch, const BatchSums& sums);
  void AddStepValidation(ReplicaId replica, int64_t step, const BatchSums& sums);
  void Finish(ReplicaId replica, absl::Time now);
  bool Finished(ReplicaId replica) const;
  // What is gathered for it leaves with the next Take.
  void Remove(ReplicaId replica);
  // The coordinator may have lost what it was told: what is kept leaves again with the next Take.
  void ReportAgain();
  // The replica goes on with `step`: nothing of it or of a later one is reported again (the job may have been taken back).
  void Forget(ReplicaId replica, int64_t step, int64_t steps_per_epoch);

  absl::Time deadline() const { return deadline_; }
  // What is ready, and what is due at `now`; job and generation are the caller's to fill in.
  std::vector<v1::ReplicaReport> Take(absl::Time now);
  bool HasReady() const { return !ready_.empty(); }

 private:
  struct Entry {
    v1::ReplicaReport report;  // train sums so far
    bool open = false;         // report holds steps
    bool alone = true;         // the next step is a report of its own
    absl::Time due;            // of the open report
    bool finished = false;
    absl::Time finished_due;
  };
  void Close(Entry& entry);
  void Keep(v1::ReplicaReport report);  // ready, and again with ReportAgain
  void FindDeadline();

  const absl::Duration interval_, finished_interval_;
  std::map<ReplicaId, Entry> entries_;
  std::vector<v1::ReplicaReport> ready_;
  std::map<ReplicaId, std::vector<v1::ReplicaReport>> kept_;  // also of replicas that have left
  int64_t newest_epoch_ = 0;
  int64_t steps_per_epoch_ = 1;
  absl::Time deadline_ = absl::InfiniteFuture();
};

}  // namespace cairn
