// JobProgress: how far the replicas of one job are, and the figures of its epochs.
//
// Not thread-safe; used by ClusterCore. Invariants:
//   1. The training's figures are the first partition's: the newest report replaces those before, by generation and
//      version. An epoch is closed when its figures hold all its steps. Its primary is asked for what is missing
//      (AsksForFigures). A replica's share of a validation is counted once: a report that is repeated adds nothing. Of
//      a job that waits at the end of an epoch (epochs_open) the validation's figures are always whole; else nothing
//      waits for them for longer than a grace time.
//   2. Epoch results are appended in order, once, and only when every replica is past the epoch.
//   3. Memory is bounded: what is kept is of epochs that some replica has reached and that are not closed.
//   4. Figures do not depend on who reported what in which grouping (common/base/exact_sum.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"
#include "cairn/v1/job_status.pb.h"
#include "common/base/status.h"
#include "common/model/epoch_figures.h"
#include "coordinator/core/rate_meter.h"

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

  // Whether anything was counted. Errors: INVALID_ARGUMENT, the report does not fit the job.
  absl::StatusOr<bool> Count(const v1::ReplicaReport& report, v1::JobStatus& status, absl::Time now);
  // Of this job and at least the generation that it was taken back in. Whether it is news. Errors as Count.
  absl::StatusOr<bool> TakeFigures(const v1::FiguresReport& report, const v1::JobStatus& status, absl::Time now);
  // All steps of an epoch are done, and its figures are not here: whether the first partition's primary is to be asked
  // now. Each time once.
  bool AsksForFigures(absl::Time now, const v1::JobStatus& status);
  // A worker says that its replicas have reached `step`.
  void Reached(const std::vector<int32_t>& replicas, int64_t step, absl::Time now);

  // Appends the epochs that can be closed to status.epochs; returns how many.
  int CloseEpochs(absl::Time now, absl::Duration grace, v1::JobStatus& status);
  // Every replica has finished, the training's figures are complete, and the validation's are or were waited for long
  // enough. Call CloseEpochs before.
  bool Done(absl::Time now, const v1::JobStatus& status) const;
  // After Done: closes what is left.
  void CloseAll(absl::Time now, v1::JobStatus& status);

  // step, epoch, epoch_sums, images_per_second where it is known
  void Fill(absl::Time now, v1::JobStatus& status) const;
  // The training's sums of the last epoch that there are any of, and which that is; null: there are none since this was
  // made.
  const v1::MetricSums* NewestTrain(int* epoch) const;

  // Validation figures of the epoch may still come; closed or not.
  bool AwaitsValidation(int epoch, const v1::JobStatus& status) const;

  int64_t step() const;  // that all replicas have reached
  std::vector<int32_t> Slowest() const;
  absl::Time last_advance() const { return last_advance_; }
  void Restart(absl::Time now) { last_advance_ = now; }  // of the wait for the next advance
  // The job falls back: all replicas go on from `step` at most. Epochs that are closed stay so.
  void RollBack(int64_t step, absl::Time now);
  // The job ends with this epoch.
  void EndAfter(int32_t epochs);
  int32_t epochs() const { return epochs_; }
  std::optional<absl::Time> epoch_start() const { return epoch_start_; }
  const std::vector<int64_t>& replica_step() const { return next_; }
  const std::vector<bool>& finished() const { return finished_; }

 private:
  struct Epoch {
    v1::MetricSums validation;
    std::vector<bool> validated;                       // by replica
    absl::Time passed_at = absl::InfiniteFuture();     // all replicas are past its steps
    std::optional<absl::Time> ended_at;                // when that was, as far as can be told
    absl::Time moved_on_at = absl::InfiniteFuture();   // ... and in the next one
    absl::Time validated_at = absl::InfiniteFuture();  // all validation figures are there
  };

  // A validation within an epoch (validation_freq_steps) that not every replica has reported its share of.
  struct StepSums {
    v1::MetricSums sums;
    std::vector<bool> validated;  // by replica
  };

  int64_t ReachedBy(int32_t replica) const;
  void Measure(int32_t replica, absl::Time now);
  double ExamplesDone() const;
  const v1::EpochFigures* FiguresOf(int epoch) const;  // null: none yet
  bool TrainComplete(int epoch) const;
  bool WaitsForFigures(int epoch, const Epoch& e) const;
  bool ValidationExpected(int epoch) const;
  bool ValidationComplete(int epoch, const Epoch& e) const;
  void CountValidation(const v1::ReplicaReport& report, v1::JobStatus& status, absl::Time now);
  bool CountStepValidation(const v1::ReplicaReport& report, v1::JobStatus& status);
  bool AllValidated(const std::vector<bool>& validated) const;
  void EstimateEnds(int first, absl::Time now);
  void Append(int epoch, absl::Time now, v1::JobStatus& status);

  int32_t replicas_ = 0;
  int32_t epochs_ = 0;
  int64_t steps_per_epoch_ = 1;
  int64_t total_steps_ = 0;
  bool synchronous_ = false;
  int metrics_ = 0;
  int32_t validation_freq_ = 1;
  int64_t validation_examples_ = 0;
  bool gated_ = false;

  std::vector<int64_t> next_;               // next step of a replica, as its reports say
  std::vector<int64_t> reached_;            // as heartbeats say, by replica
  std::vector<absl::Time> complete_since_;  // since when heartbeats say that all steps are done
  std::vector<bool> finished_;
  std::map<int, Epoch> open_;
  std::optional<v1::FiguresReport> figures_;  // the newest
  absl::Time figures_at_ = absl::InfinitePast(), figures_asked_ = absl::InfinitePast();
  std::map<int64_t, StepSums> open_validations_;  // by step; at most kOpenValidationsMax
  std::optional<absl::Time> epoch_start_;         // nullopt: not known
  absl::Time last_advance_;
  absl::Time last_report_;
  std::vector<bool> heard_;   // by replica: where it is is known
  double step_examples_ = 0;  // of one replica, in the mean
  RateMeter rate_;            // of examples, by the steps of all replicas
};

}  // namespace cairn
