// ReportBook: batches a worker's reports to the coordinator about its replicas of one job: their progress, their shares
// of validations, and their end. Training figures travel with the pushes instead (SynchronousMode, IndependentMode),
// since they belong to the updates.
//
// One caller at a time. Invariants:
//   1. A step is reported at most `interval` after it was acknowledged, at once at the end of its epoch, and before
//      the replica is removed.
//   2. `finished` is reported again every `finished_interval` until the replica is removed.
//   3. Figures are rounded once; sums of rounded figures are exact and keep their rests (common/base/exact_sum.h).
//   4. Reports of the validations of the newest two epochs are kept, for a coordinator that was restarted.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"
#include "common/base/ids.h"
#include "worker/backend/backend.h"

namespace cairn {

// Rounds each sum once.
v1::MetricSums ToMetricSums(const BatchSums& sums);

class ReportBook {
 public:
  static constexpr size_t kKeptOfReplica = 128;  // validation reports kept per replica

  ReportBook(absl::Duration interval, absl::Duration finished_interval)
      : interval_(interval), finished_interval_(finished_interval) {}

  // The replica's step is acknowledged.
  void AddStep(ReplicaId replica, int64_t step, int64_t steps_per_epoch, absl::Time now);
  void AddValidation(ReplicaId replica, int32_t epoch, const BatchSums& sums);
  void AddStepValidation(ReplicaId replica, int64_t step, const BatchSums& sums);
  void Finish(ReplicaId replica, absl::Time now);
  bool Finished(ReplicaId replica) const;
  // Its pending report is returned by the next Take.
  void Remove(ReplicaId replica);
  // The coordinator may have lost reports: the next Take returns the kept ones again.
  void ReportAgain();
  // The replica continues with `step`: kept validations of later steps are not reported again (the job may have been
  // rolled back).
  void Forget(ReplicaId replica, int64_t step, int64_t steps_per_epoch);

  absl::Time deadline() const { return deadline_; }
  // Reports that are ready or due at `now`; the caller fills in job and generation.
  std::vector<v1::ReplicaReport> Take(absl::Time now);
  bool HasReady() const { return !ready_.empty(); }

 private:
  struct Entry {
    std::optional<int64_t> step;  // the last one acknowledged, not reported yet
    absl::Time due;               // when to report it
    bool finished = false;
    absl::Time finished_due;
  };
  void Tell(ReplicaId replica, Entry& entry);
  void Keep(v1::ReplicaReport report);  // makes it ready, and keeps it for ReportAgain
  int64_t EpochOf(const v1::ReplicaReport& validation) const;
  void FindDeadline();

  const absl::Duration interval_, finished_interval_;
  std::map<ReplicaId, Entry> entries_;
  std::vector<v1::ReplicaReport> ready_;
  std::map<ReplicaId, std::vector<v1::ReplicaReport>> kept_;  // also of removed replicas
  int64_t newest_epoch_ = 0;
  int64_t steps_per_epoch_ = 1;
  absl::Time deadline_ = absl::InfiniteFuture();
};

}  // namespace cairn
