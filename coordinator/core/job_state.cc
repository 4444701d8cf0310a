#include "coordinator/core/job_state.h"

namespace cairn {

bool MayFollow(v1::JobState from, v1::JobState to) {
  const bool stopped = to == v1::FAILED || to == v1::CANCELLED;
  switch (from) {
    case v1::JOB_STATE_UNSPECIFIED: return to == v1::QUEUED;
    case v1::QUEUED: return to == v1::STARTING || stopped;
    case v1::STARTING: return to == v1::STARTING || to == v1::RUNNING || to == v1::FINALIZING || stopped;
    case v1::RUNNING: return to == v1::STARTING || to == v1::FINALIZING || stopped;
    case v1::FINALIZING:
      return to == v1::STARTING || to == v1::RUNNING || to == v1::SUCCEEDED || to == v1::ENDED_WITH_ERRORS || stopped;
    case v1::SUCCEEDED:
    case v1::ENDED_WITH_ERRORS:
    case v1::FAILED:
    case v1::CANCELLED:
    default: return false;
  }
}

}  // namespace cairn
