// Retention: how long jobs that have ended are kept, with their weights (--keep-ended-jobs). A value; any thread.
//
// Text form: `RULE,RULE,...`, each at most once, in any order; what is not named has its default.
//   STATE=AGE            STATE: succeeded, ended_with_errors, failed, cancelled. AGE: a number and s, m, h or d, or
//                        `forever`
//   without_weights=N    the newest N jobs without weights are kept (they never ran, or lost them); the ages apply to
//                        them too
#pragma once

#include <string>

#include "absl/time/time.h"
#include "cairn/v1/job_status.pb.h"
#include "common/base/limits.h"
#include "common/base/status.h"
#include "coordinator/core/limits.h"

namespace cairn {

// Ended jobs are kept up to a limit (kEndedJobsMax): beyond it, no job is accepted until one is deleted. A list of all
// of them fits into the largest message that a client accepts.

struct Retention {
  // Time after the end; infinite: until a user deletes the job. By default, the weights of a job that has done all its
  // steps are never dropped.
  absl::Duration succeeded = absl::InfiniteDuration();
  absl::Duration ended_with_errors = absl::InfiniteDuration();
  absl::Duration failed = absl::Hours(30 * 24);
  absl::Duration cancelled = absl::Hours(7 * 24);
  // 0 .. kEndedJobsMax. These jobs cost little and are worth little.
  int without_weights = kFinishedJobsKept;

  // Errors: INVALID_ARGUMENT names the rule and what to write.
  static absl::StatusOr<Retention> Parse(const std::string& text);

  // How long a job that ended in this state is kept.
  absl::Duration AgeMax(v1::JobState state) const;
  // For users: "ended jobs are kept until they are deleted; failed ones for 30d, ..."
  std::string Text() const;
};

}  // namespace cairn
