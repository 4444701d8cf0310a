// JobProgress: how far one job is: its replicas, the figures of its epochs, and when an epoch is closed.
//
// It puts together what four classes know, of which each changes by itself: ReplicaSteps, ReportedFigures,
// ValidationShares, EpochTimes.
//
// Not thread-safe; used by ClusterCore. Invariants:
//   1. An epoch is closed when every replica is past it, its figures hold all its steps, and its validation is whole.
//      Of a job that waits at the end of an epoch (epochs_open) the validation's figures are always waited for; else
//      for no longer than a grace time.
//   2. Epoch results are appended in order, once.
//   3. Memory is bounded: what is kept is of epochs that some replica has reached and that are not closed, but for the
//      last of these, whose late validation figures are still taken.
//   4. Figures do not depend on who reported what in which grouping (common/base/exact_sum.h).
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
  // Of a job that runs since before our own start. Its steps are behind what replicas have done meanwhile: what a
  // replica says first is where it is, and nothing that it did now. epoch_start: of the running epoch; nullopt: not
  // known.
  void GoesOn(absl::Time now, std::optional<absl::Time> epoch_start);

  // ---- reports ----
  // Whether anything was counted. Errors: INVALID_ARGUMENT, the report does not fit the job.
  absl::StatusOr<bool> Count(const v1::ReplicaReport& report, v1::JobStatus& status, absl::Time now);
  // Of this job and at least the generation that it was taken back in. Whether it is news. Errors as Count.
  absl::StatusOr<bool> TakeFigures(const v1::FiguresReport& report, const v1::JobStatus& status, absl::Time now) {
    return figures_.Take(report, status, now);
  }
  // All steps of an epoch are done, and its figures are not here: whether the first partition's primary is to be asked
  // now.
  bool WantsFigures(absl::Time now, const v1::JobStatus& status) const;
  // It was asked; question: as ReportedFigures::Asked.
  void AskedForFigures(uint64_t question, absl::Time now) { figures_.Asked(question, now); }
  // A worker says that its replicas have reached `step`.
  void Reached(const std::vector<int32_t>& replicas, int64_t step, absl::Time now) {
    replicas_.Reached(replicas, step, now);
  }
  void Restart(absl::Time now) { replicas_.RestartWait(now); }  // of the wait for the next advance

  // ---- epochs ----
  // Appends the epochs that can be closed to status.epochs; returns how many.
  int CloseEpochs(absl::Time now, absl::Duration grace, v1::JobStatus& status);
  // Every replica has finished, the training's figures are complete, and the validation's are or were waited for long
  // enough. Call CloseEpochs before.
  bool Done(absl::Time now, const v1::JobStatus& status) const;
  // After Done: closes what is left.
  void CloseAll(absl::Time now, v1::JobStatus& status);
  // The job falls back: all replicas go on from `step` at most. Epochs that are closed stay so.
  void RollBack(int64_t step, absl::Time now);
  // The job ends with this epoch.
  void EndAfter(int32_t epochs);

  // ---- what is known ----
  const ReplicaSteps& replicas() const { return replicas_; }
  int64_t step() const { return replicas_.step(); }  // that all replicas have reached
  int32_t epochs() const { return epochs_; }
  std::optional<absl::Time> epoch_start() const { return times_.start(); }
  // The training's sums of the last epoch that there are any of, and which that is; null: there are none since this was
  // made.
  const v1::MetricSums* NewestTrain(int* epoch) const { return figures_.Newest(epoch); }
  // Validation figures of the epoch may still come; closed or not.
  bool AwaitsValidation(int epoch, const v1::JobStatus& status) const;
  // step, epoch, epoch_sums, images_per_second where it is known
  void Fill(absl::Time now, v1::JobStatus& status) const;

 private:
  void CountValidation(const v1::ReplicaReport& report, v1::JobStatus& status, absl::Time now);
  void Append(int epoch, absl::Time now, v1::JobStatus& status);

  int32_t epochs_;  // fewer where the job was stopped
  int64_t steps_per_epoch_;
  bool gated_;  // it waits at the end of epochs
  ReplicaSteps replicas_;
  ReportedFigures figures_;
  ValidationShares validations_;
  EpochTimes times_;
  absl::Time last_report_;
};

}  // namespace cairn
