// Dashboard: what the coordinator answers over HTTP (--http): pages for people, JSON for scripts, figures for
// Prometheus, probes for Kubernetes.
//
//   /                      the dashboard, with /dashboard.css and /dashboard.js
//   /api/v1/nodes          as `cairn nodes --json` prints them
//   /api/v1/jobs           as `cairn jobs --json` prints them
//   /api/v1/jobs/ID        as `cairn job ID --json` prints it; or a name
//   /api/v1/overview?jobs=all|active|ended&offset=0&limit=50   what the dashboard's first page shows
//   /metrics               what `cairn metrics` prints, and figures of this process
//   /healthz               200 while this process works: its core has answered within kStuckAfter. For liveness probes
//   /readyz                200 where it leads, or stands by and knows who leads: calls are answered or sent on. Else
//                          503, and why
//
// A standby sends who asks for / and /api to the leader (307) where that one has HTTP too, else says who leads (503).
// Its /metrics are its own.
//
// Thread-safe. Invariants: 1. The core is asked for all nodes and jobs at most once in kFresh, however many ask, and
// copies no more of a job than a row shows; for all of all jobs (/api/v1/jobs), and for the job that was asked for
// last, at most once in kFresh too. 2. An answer is there within CoreQuestions::kPatience and the time to write it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "common/http/server.h"
#include "coordinator/node/cluster_driver.h"
#include "coordinator/node/core_questions.h"

namespace cairn {

class Dashboard {
 public:
  static constexpr absl::Duration kFresh = absl::Milliseconds(500);
  static constexpr absl::Duration kStuckAfter = absl::Seconds(30);

  // name: of this coordinator, for people: its address. Driver and clock (thread-safe) outlive it.
  Dashboard(ClusterDriver* driver, Clock* clock, std::string name, absl::Duration patience = CoreQuestions::kPatience);

  HttpAnswer Answer(const HttpRequest& request);

 private:
  struct View {
    std::vector<v1::NodeStatus> nodes;
    std::vector<v1::JobStatus> jobs;  // newest first; JobTable::JobRows
    absl::Time now;
  };
  // What was last answered, for kFresh.
  template <typename T>
  struct Kept {
    absl::StatusOr<std::shared_ptr<const T>> answer = absl::UnavailableError("");
    absl::Time at = absl::InfinitePast();
  };
  using ViewPtr = std::shared_ptr<const View>;
  using JobsPtr = std::shared_ptr<const v1::ListJobsResponse>;
  using JobPtr = std::shared_ptr<const v1::JobStatus>;

  absl::StatusOr<ViewPtr> Look();
  absl::StatusOr<JobsPtr> AllJobs();
  absl::StatusOr<JobPtr> OneJob(const std::string& which);
  HttpAnswer Api(const HttpRequest& request);
  HttpAnswer Metrics();
  HttpAnswer Health();
  HttpAnswer Ready();

  const std::string name_;
  Clock* const clock_;
  const absl::Time started_ = clock_->Now();
  CoreQuestions questions_;
  absl::Mutex looking_, listing_;  // held by the one who asks; the others wait for that answer
  Kept<View> view_ ABSL_GUARDED_BY(looking_);
  Kept<v1::ListJobsResponse> jobs_ ABSL_GUARDED_BY(listing_);
  absl::Mutex mutex_;  // not held while the core is asked: who asks for another job does not wait
  std::string which_ ABSL_GUARDED_BY(mutex_);
  Kept<v1::JobStatus> job_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
