// ReportedFigures: the figures of one job's training, as the primary of its first partition reports them.
//
// Not thread-safe; part of JobProgress. Invariants:
//   1. The newest report, by generation and version, replaces the earlier ones.
//   2. The figures of an epoch are complete when they hold all its steps. The wait for them ends when the ps is asked
//      kFiguresWaitMax or more after the epoch's end and answers without them: then the pushing worker or the ps did
//      not support figures, or all copies were lost. A delayed report is no such answer.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"
#include "cairn/v1/job_status.pb.h"
#include "common/base/status.h"
#include "common/model/epoch_figures.h"

namespace cairn {

class ReportedFigures {
 public:
  explicit ReportedFigures(const v1::JobStatus& status);

  // Returns whether it is new. Errors: INVALID_ARGUMENT, the report does not fit the job.
  absl::StatusOr<bool> Take(const v1::FiguresReport& report, const v1::JobStatus& status, absl::Time now);
  void Forget();

  const v1::EpochFigures* Of(int epoch) const;  // null: none yet
  // passed_at: when all replicas were past the epoch's steps.
  bool WaitsFor(int epoch, absl::Time passed_at) const;
  // Whether the ps may be asked now: the rate of questions is limited.
  bool MayAsk(absl::Time now) const;
  // question: unique to this coordinator, and higher than all before.
  void Asked(uint64_t question, absl::Time now);
  // The training's sums of the newest epoch that has any, and that epoch's number; null: there are none.
  const v1::MetricSums* Newest(int* epoch) const;

 private:
  bool Complete(int epoch) const;
  void NoteAnswer(const v1::FiguresReport& report, absl::Time now);

  bool synchronous_;
  int metrics_;
  int64_t steps_per_epoch_;
  int64_t epoch_replica_steps_;  // steps of all replicas in one epoch
  std::optional<v1::FiguresReport> newest_;
  std::deque<std::pair<uint64_t, absl::Time>> asked_;  // the last answered question, and those after it
  absl::Time answered_ = absl::InfinitePast();         // when that one was asked
};

double StalenessMean(const v1::EpochFigures& figures);

}  // namespace cairn
