// LogPage: /api/v1/logs, the newest lines of one daemon's log as JSON.
//
//   /api/v1/logs?node=ps-0&job=3&level=warning&limit=200
//
// node: empty, or left out: the coordinator that answers. job: only lines of that job; a user may read no others.
//
// Thread-safe. Invariants: 1. A caller waits for a node at most kLogReadTimeout and a second. 2. At most kLogPagesMax
// callers wait, so that slow nodes do not take all of the server's threads.
#pragma once

#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/http/server.h"
#include "coordinator/core/requester.h"
#include "coordinator/node/cluster_driver.h"
#include "coordinator/node/core_questions.h"

namespace cairn {

class LogPage {
 public:
  // Both outlive it.
  LogPage(ClusterDriver* driver, CoreQuestions* questions) : driver_(driver), questions_(questions) {}

  // Errors: INVALID_ARGUMENT names the parameter; those of CheckLogAccess and of the node; RESOURCE_EXHAUSTED.
  absl::StatusOr<std::string> Answer(const HttpRequest& request, const Requester& who);

 private:
  absl::StatusOr<v1::ReadLogResponse> Own(const v1::ReadLogRequest& request, const Requester& who);
  absl::StatusOr<v1::ReadLogResponse> OfNode(const v1::ReadLogRequest& request, const Requester& who);

  ClusterDriver* const driver_;
  CoreQuestions* const questions_;
  absl::Mutex mutex_;
  int waiting_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn
