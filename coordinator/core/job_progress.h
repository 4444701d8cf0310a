// JobProgress: the progress of one job: its replicas' steps, the figures of its epochs, and when an epoch is closed.
//
// It combines four independent classes: ReplicaSteps, ReportedFigures,
// ValidationShares, EpochTimes.
//
// Not thread-safe; used by ClusterCore. Invariants:
//   1. An epoch is closed when every replica is past it, its figures hold all its steps, and its validation is
//      complete. A job that waits at the end of epochs (epochs_open) always waits for the validation; others wait no
//      longer than a grace time.
//   2. Epoch results are appended in order, once.
//   3. Memory is bounded: only epochs that some replica has reached and that are not closed are kept, and the last
//      closed one, whose late validation figures are still taken.
//   4. Figures do not depend on how the reports were grouped (common/base/exact_sum.h).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"
#include "cairn/v1/job_status.pb.h"
#include "common/base/status.h"
#include "coordinator/core/epoch_times.h"
#include "coordinator/core/replica_steps.h"
#include "coordinator/core/reported_figures.h"
#include "coordinator/core/validation_shares.h"

namespace cairn {

class JobProgress {
 public:
  // status: resolved (replicas, steps_per_epoch, total_steps, data). replica_step and finished: as stored, or empty.
  JobProgress(const v1::JobStatus& status, std::vector<int64_t> replica_step, std::vector<bool> finished,
              absl::Time now);
  // The job was running before this coordinator started. The stored steps lag behind the replicas: a replica's first
  // report only tells where it is, and does not count as progress. epoch_start: of the running epoch; nullopt: not
  // known.
  void GoesOn(absl::Time now, std::optional<absl::Time> epoch_start);

  // ---- reports ----
  // Returns whether anything was counted. Errors: INVALID_ARGUMENT, the report does not fit the job.
  absl::StatusOr<bool> Count(const v1::ReplicaReport& report, v1::JobStatus& status, absl::Time now);
  // report: of this job, and of no generation before its last rollback. Returns whether it is new. Errors as Count.
  absl::StatusOr<bool> TakeFigures(const v1::FiguresReport& report, const v1::JobStatus& status, absl::Time now) {
    return figures_.Take(report, status, now);
  }
  // Whether to ask the first partition's primary for figures now: all steps of an epoch are done, and its figures are
  // missing.
  bool WantsFigures(absl::Time now, const v1::JobStatus& status) const;
  // The primary was asked; question: as ReportedFigures::Asked.
  void AskedForFigures(uint64_t question, absl::Time now) { figures_.Asked(question, now); }
  // A worker reports that its replicas have reached `step`.
  void Reached(const std::vector<int32_t>& replicas, int64_t step, absl::Time now) {
    replicas_.Reached(replicas, step, now);
  }
  void Restart(absl::Time now) { replicas_.RestartWait(now); }  // restarts the wait for the next advance

  // ---- epochs ----
  // Appends the epochs that can be closed to status.epochs; returns how many.
  int CloseEpochs(absl::Time now, absl::Duration grace, v1::JobStatus& status);
  // Every replica has finished, the training's figures are complete, and the validation's are complete or their grace
  // time is over. Call CloseEpochs before.
  bool Done(absl::Time now, const v1::JobStatus& status) const;
  // After Done: closes the remaining epochs.
  void CloseAll(absl::Time now, v1::JobStatus& status);
  // The job falls back: all replicas continue from `step` at most. Closed epochs stay closed.
  void RollBack(int64_t step, absl::Time now);
  // The job ends with this epoch.
  void EndAfter(int32_t epochs);

  // ---- what is known ----
  const ReplicaSteps& replicas() const { return replicas_; }
  int64_t step() const { return replicas_.step(); }  // that all replicas have reached
  int32_t epochs() const { return epochs_; }
  std::optional<absl::Time> epoch_start() const { return times_.start(); }
  // The training's sums of the newest epoch that has any, and that epoch's number; null: none were reported to this
  // object.
  const v1::MetricSums* NewestTrain(int* epoch) const { return figures_.Newest(epoch); }
  // Whether validation figures of the epoch, closed or not, may still come.
  bool AwaitsValidation(int epoch, const v1::JobStatus& status) const;
  // Fills step, epoch, epoch_sums, and images_per_second where known.
  void Fill(absl::Time now, v1::JobStatus& status) const;

 private:
  void CountValidation(const v1::ReplicaReport& report, v1::JobStatus& status, absl::Time now);
  void Append(int epoch, absl::Time now, v1::JobStatus& status);

  int32_t epochs_;  // fewer where the job was stopped
  int64_t steps_per_epoch_;
  bool gated_;  // the job waits at the end of epochs
  ReplicaSteps replicas_;
  ReportedFigures figures_;
  ValidationShares validations_;
  EpochTimes times_;
  absl::Time last_report_;
};

}  // namespace cairn
