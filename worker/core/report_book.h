// ReportBook: what one worker tells the coordinator of its replicas of one job, gathered into few reports: how far they
// are, their shares of validations, and their end. The training's figures go with the pushes instead (SynchronousMode,
// IndependentMode): they are the updates'.
//
// One caller at a time. Invariants:
//   1. A step is told at the latest `interval` after it was acknowledged, at once at the end of its epoch, and before
//      the replica leaves.
//   2. `finished` is reported again every `finished_interval` until the replica leaves.
//   3. Figures are rounded once, and exact sums of rounded ones keep their rests (common/base/exact_sum.h).
//   4. What was reported of the validations of the newest two epochs is kept, for a coordinator that was restarted.
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

// Each rounded once.
v1::MetricSums ToMetricSums(const BatchSums& sums);

class ReportBook {
 public:
  static constexpr size_t kKeptOfReplica = 128;  // validations

  ReportBook(absl::Duration interval, absl::Duration finished_interval)
      : interval_(interval), finished_interval_(finished_interval) {}

  // The replica's step is acknowledged.
  void AddStep(ReplicaId replica, int64_t step, int64_t steps_per_epoch, absl::Time now);
  void AddValidation(ReplicaId replica, int32_t epoch, const BatchSums& sums);
  void AddStepValidation(ReplicaId replica, int64_t step, const BatchSums& sums);
  void Finish(ReplicaId replica, absl::Time now);
  bool Finished(ReplicaId replica) const;
  // What is gathered for it leaves with the next Take.
  void Remove(ReplicaId replica);
  // The coordinator may have lost what it was told: what is kept leaves again with the next Take.
  void ReportAgain();
  // The replica goes on with `step`: nothing of it or of a later one is reported again (the job may have been taken
  // back).
  void Forget(ReplicaId replica, int64_t step, int64_t steps_per_epoch);

  absl::Time deadline() const { return deadline_; }
  // What is ready, and what is due at `now`; job and generation are the caller's to fill in.
  std::vector<v1::ReplicaReport> Take(absl::Time now);
  bool HasReady() const { return !ready_.empty(); }

 private:
  struct Entry {
    std::optional<int64_t> step;  // the last one acknowledged, not told yet
    absl::Time due;               // to be told
    bool finished = false;
    absl::Time finished_due;
  };
  void Tell(ReplicaId replica, Entry& entry);
  void Keep(v1::ReplicaReport report);  // ready, and again with ReportAgain
  int64_t EpochOf(const v1::ReplicaReport& validation) const;
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
