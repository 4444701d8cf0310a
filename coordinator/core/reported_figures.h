// ReportedFigures: the figures of one job's training, as the primary of its first partition reports them.
//
// Not thread-safe; part of JobProgress. Invariants:
//   1. The newest report replaces those before, by generation and version.
//   2. The figures of an epoch are complete when they hold all its steps. The wait for them ends where the ps was asked
//      kFiguresWaitMax after the epoch's end, or later, and answered without them: they were pushed or kept by a
//      process that knew of none, or were lost with all copies. A report that was delayed is no such answer.
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

  // Whether it is news. Errors: INVALID_ARGUMENT, the report does not fit the job.
  absl::StatusOr<bool> Take(const v1::FiguresReport& report, const v1::JobStatus& status, absl::Time now);
  void Forget();

  const v1::EpochFigures* Of(int epoch) const;  // null: none yet
  // passed_at: when all replicas were past the epoch's steps.
  bool WaitsFor(int epoch, absl::Time passed_at) const;
  // Questions are not asked all the time.
  bool MayAsk(absl::Time now) const;
  // question: of this coordinator alone, and higher than those before.
  void Asked(uint64_t question, absl::Time now);
  // The training's sums of the last epoch that there are any of, and which that is; null: there are none.
  const v1::MetricSums* Newest(int* epoch) const;

 private:
  bool Complete(int epoch) const;
  void NoteAnswer(const v1::FiguresReport& report, absl::Time now);

  bool synchronous_;
  int metrics_;
  int64_t steps_per_epoch_;
  int64_t epoch_replica_steps_;  // of all replicas
  std::optional<v1::FiguresReport> newest_;
  std::deque<std::pair<uint64_t, absl::Time>> asked_;  // the last question that was answered, and those after it
  absl::Time answered_ = absl::InfinitePast();         // when that one was asked
};

double StalenessMean(const v1::EpochFigures& figures);

}  // namespace cairn
