// Dashboard: the coordinator's HTTP interface (--http): pages for people, JSON for scripts, metrics for Prometheus,
// probes for Kubernetes.
//
//   /                      the dashboard, with /dashboard.css and its scripts
//   /api/v1/nodes          as `cairn nodes --json` prints them
//   /api/v1/jobs           as `cairn jobs --json` prints them
//   /api/v1/jobs/ID        as `cairn job ID --json` prints it; ID: a number or a name
//   /api/v1/logs?node=NAME&job=ID&level=warning&limit=200      the newest lines of a daemon's log (log_page.h)
//   /api/v1/overview?jobs=all|active|ended&offset=0&limit=50   what the dashboard's first page shows
//   /api/v1/rights         what the caller may change (actions.h)
//   /api/v1/leader         who leads, said by a standby too: {"leads", "pages", "text"}
//   /metrics               what `cairn metrics` prints, and metrics of this process
//   /healthz               200 while this process works: its core has answered within kStuckAfter. For liveness probes
//   /readyz                200 if it leads, or stands by and knows the leader: calls are answered or redirected. Else
//                          503 with the reason
//
// With TLS a user sees nodes and own jobs, as `cairn jobs` shows them; admins, nodes and certificates without a role
// (monitoring) see everything, as everybody does without TLS.
//
// POST below /api/v1 changes something: actions.h.
//
// A standby redirects / and /api to the leader (307) if the leader has HTTP too, else it names the leader (503). Its
// /metrics are its own.
//
// Thread-safe. Invariants: 1. However many clients there are, the core is asked for all nodes and jobs at most once in
// kFresh, and copies no more of a job than a row shows; likewise at most once in kFresh for all jobs in full
// (/api/v1/jobs), and for the job last asked for by one user; and once more after each change. 2. An answer takes at
// most CoreQuestions::kPatience, that to a change kPageActionWait, and its writing.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "common/http/server.h"
#include "coordinator/core/requester.h"
#include "coordinator/dashboard/actions.h"
#include "coordinator/dashboard/log_page.h"
#include "coordinator/node/cluster_driver.h"
#include "coordinator/node/core_questions.h"

namespace cairn {

class Dashboard {
 public:
  static constexpr absl::Duration kFresh = absl::Milliseconds(500);
  static constexpr absl::Duration kStuckAfter = absl::Seconds(30);

  // name: this coordinator's address, as shown to people. calls: null: the pages are read-only. Driver, clock
  // (thread-safe) and calls outlive it.
  Dashboard(ClusterDriver* driver, Clock* clock, std::string name, const UserCalls* calls = nullptr,
            absl::Duration patience = CoreQuestions::kPatience);

  // As HttpServerOptions::before_post.
  std::optional<HttpAnswer> BeforePost(const HttpRequest& request) const { return actions_.BeforePost(request); }
  // GET, HEAD, and a POST that BeforePost let through.
  HttpAnswer Answer(const HttpRequest& request);

 private:
  struct View {
    std::vector<v1::NodeStatus> nodes;
    std::vector<v1::JobStatus> jobs;  // newest first; JobTable::JobRows
    v1::ListEventsResponse events;    // of all jobs and nodes
    absl::Time now;
  };
  // The last answer, reused for kFresh.
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
  absl::StatusOr<JobPtr> OneJob(const std::string& which, const Requester& who);
  HttpAnswer Act(const HttpRequest& request);
  HttpAnswer Api(const HttpRequest& request);
  HttpAnswer Jobs(const HttpRequest& request, const Requester& who);
  HttpAnswer OfView(const HttpRequest& request, const Requester& who);
  HttpAnswer Leader();
  HttpAnswer Metrics(const Requester& who);
  HttpAnswer Health();
  HttpAnswer Ready();

  const std::string name_;
  Clock* const clock_;
  const absl::Time started_ = clock_->Now();
  CoreQuestions questions_;
  LogPage logs_;
  Actions actions_;
  absl::Mutex looking_, listing_;  // held by the caller that asks the core; the others wait for its answer
  Kept<View> view_ ABSL_GUARDED_BY(looking_);
  Kept<v1::ListJobsResponse> jobs_ ABSL_GUARDED_BY(listing_);
  absl::Mutex mutex_;  // not held while the core is asked, so that a request for another job does not wait
  std::string which_ ABSL_GUARDED_BY(mutex_);  // the job, and who asked
  Kept<v1::JobStatus> job_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
