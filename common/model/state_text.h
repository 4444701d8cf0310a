// The states of a job: their names in tables, logs and errors, and predicates on them. Any thread.
#pragma once

#include "cairn/v1/job_status.pb.h"

namespace cairn {

inline const char* StateText(v1::JobState state) {
  switch (state) {
    case v1::QUEUED: return "queued";
    case v1::STARTING: return "starting";
    case v1::RUNNING: return "running";
    case v1::FINALIZING: return "finalizing";
    case v1::SUCCEEDED: return "succeeded";
    case v1::FAILED: return "failed";
    case v1::CANCELLED: return "cancelled";
    case v1::ENDED_WITH_ERRORS: return "ended with errors";
    default: return "unknown";
  }
}

// All steps are done, and the weights are on disk at the versions from which the digest was computed.
inline bool IsComplete(v1::JobState state) { return state == v1::SUCCEEDED || state == v1::ENDED_WITH_ERRORS; }

// The job has ended: its state does not change any more.
inline bool IsFinal(v1::JobState state) { return IsComplete(state) || state == v1::FAILED || state == v1::CANCELLED; }

}  // namespace cairn
