// The name of a job's state, as users see it in tables, logs and errors. Any thread.
#pragma once

#include "cairn/v1/job_status.pb.h"

namespace cairn {

inline const char* StateText(v1::JobState state) {
  switch (state) {
    case v1::QUEUED:
      return "queued";
    case v1::STARTING:
      return "starting";
    case v1::RUNNING:
      return "running";
    case v1::FINALIZING:
      return "finalizing";
    case v1::SUCCEEDED:
      return "succeeded";
    case v1::FAILED:
      return "failed";
    case v1::CANCELLED:
      return "cancelled";
    default:
      return "unknown";
  }
}

}  // namespace cairn
