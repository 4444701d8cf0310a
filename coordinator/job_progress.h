// JobProgress: how far the replicas of one job are, and the figures of its epochs.
//
// Not thread-safe; used by ClusterCore. Invariants:
//   1. A step of a replica is counted once, and so is its share of an epoch's validation: a report that is repeated, or that overlaps what
//      was counted, adds nothing. The training's figures may miss what a lost worker did not report; nothing waits for them for longer than
//      a grace time. Of a job that waits at the end of an epoch (epochs_open) the validation's figures are always whole.
//   2. Epoch results are appended in order, once, and only when every replica is past the epoch.
//   3. Memory is bounded: one accumulator for each epoch that some replica has reached and that is not closed.
//   4. Figures do not depend on who reported what in which grouping (common/base/exact_sum.h).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"
#include "cairn/v1/job_status.pb.h"
#include "common/base/status.h"

namespace cairn {

class JobProgress {
 public:
  // status: resolved (replicas, steps_per_epoch, total_steps, data). replica_step and finished: as stored, or empty.
  JobProgress(const v1::JobStatus& status, std::vector<int64_t> replica_step, std::vector<bool> finished,
              absl::Time now);

  // Whether anything was counted. Errors: INVALID_ARGUMENT, the report does not fit the job.
  absl::StatusOr<bool> Count(const v1::ReplicaReport& report, v1::JobStatus& status, absl::Time now);
  // A worker says that its replicas have reached `step`.
  void Reached(const std::vector<int32_t>& replicas, int64_t step, absl::Time now);

  // Appends the epochs that can be closed to status.epochs; returns how many.
  int CloseEpochs(absl::Time now, absl::Duration grace, v1::JobStatus& status);
  // Every replica has finished and the figures are complete or waited for long enough. Call CloseEpochs before.
  bool Done(absl::Time now, const v1::JobStatus& status) const;
  // After Done: closes what is left.
  void CloseAll(absl::Time now, v1::JobStatus& status);

  // step, epoch, epoch_sums, images_per_second
  void Fill(absl::Time now, v1::JobStatus& status) const;

  int64_t step() const;  // that all replicas have reached
  std::vector<int32_t> Slowest() const;
  absl::Time last_advance() const { return last_advance_; }
  void Restart(absl::Time now) { last_advance_ = now; }  // of the wait for the next advance
  // The job falls back: all replicas go on from `step` at most. Steps that are done again are not counted again.
  void RollBack(int64_t step, absl::Time now);
  // The job ends with this epoch.
  void EndAfter(int32_t epochs);
  int32_t epochs() const { return epochs_; }
  const std::vector<int64_t>& replica_step() const { return next_; }
  const std::vector<bool>& finished() const { return finished_; }

 private:
  struct Epoch {
    v1::MetricSums train;
    uint64_t staleness_sum = 0, staleness_count = 0, staleness_max = 0;
    v1::MetricSums validation;
    std::vector<bool> validated;                       // by replica
    absl::Time passed_at = absl::InfiniteFuture();     // all replicas are past its steps
    absl::Time moved_on_at = absl::InfiniteFuture();   // ... and in the next one
    absl::Time validated_at = absl::InfiniteFuture();  // all validation figures are there
  };

  // A validation within an epoch (validation_freq_steps) that not every replica has reported its share of.
  struct StepSums {
    v1::MetricSums sums;
    std::vector<bool> validated;  // by replica
  };

  int64_t ReachedBy(int32_t replica) const;
  bool Cover(int32_t replica, int64_t first, int64_t last);
  bool TrainComplete(int epoch) const;
  bool ValidationExpected(int epoch) const;
  bool ValidationComplete(int epoch, const Epoch& e) const;
  void CountValidation(const v1::ReplicaReport& report, v1::JobStatus& status, absl::Time now);
  bool CountStepValidation(const v1::ReplicaReport& report, v1::JobStatus& status);
  bool AllValidated(const std::vector<bool>& validated) const;
  void Append(int epoch, absl::Time now, v1::JobStatus& status);

  int32_t replicas_ = 0;
  int32_t epochs_ = 0;
  int64_t steps_per_epoch_ = 1;
  int64_t total_steps_ = 0;
  int metrics_ = 0;
  int32_t validation_freq_ = 1;
  int64_t validation_examples_ = 0;
  bool gated_ = false;

  std::vector<int64_t> next_;               // next step of a replica, as its reports say
  std::vector<std::map<int64_t, int64_t>> covered_;  // by replica: steps in the sums, first -> last; of epochs that are not closed
  std::vector<int64_t> reached_;            // as heartbeats say, by replica
  std::vector<absl::Time> complete_since_;  // since when heartbeats say that all steps are done
  std::vector<bool> finished_;
  std::map<int, Epoch> open_;
  std::map<int64_t, StepSums> open_validations_;  // by step; at most kOpenValidationsMax
  absl::Time epoch_start_;
  absl::Time last_advance_;
  absl::Time last_report_;
  absl::Time rate_start_;
  std::deque<std::pair<absl::Time, uint64_t>> recent_;  // examples, in buckets of time
};

inline constexpr int kStepValidationsKept = 1000;
// In order of step; the oldest beyond kStepValidationsKept goes.
void AddStepValidation(v1::StepValidation validation, v1::JobStatus& status);

void AddSums(const v1::MetricSums& from, int metrics, v1::MetricSums& to);

}  // namespace cairn
