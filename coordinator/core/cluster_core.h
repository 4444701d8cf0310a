// ClusterCore: who is alive, who owns what, which jobs run. A state machine without I/O, threads or a clock
// (docs/architecture.md#processes-cores-and-nodes). It hands events to its parts (component.h, layers.h), and their
// domain events to the parts above them.
//
// Not thread-safe: one executor drives it. Step takes one event and returns the effects to carry out, in order. A Store
// is durable before the effects after it are carried out, so a crash between any two effects leaves a state from which
// the constructor can resume. Invariants:
//   1. A command that depends on stored state comes after its Store.
//   2. A job's generation is raised, and stored, whenever its routes change or one of its ps restarts; its assignment
//      number whenever a replica changes its worker.
//   3. Partitions of a job that has run are never placed again: a copy in sync takes over for a lost primary; without
//      one, the core waits for a copy to come back (copies.h). If none can come back the job fails.
//   4. While its primaries are not all ready in the present generation, a job's replicas get no new commands; they
//      retry by themselves.
//   5. Nodes, jobs, requests in flight and their callers are bounded (limits.h, CoordinatorOptions).
//   6. Nothing that a node or a user sends crashes it: bad input is refused, or ignored with a log line.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"
#include "coordinator/core/component.h"
#include "coordinator/core/endings.h"
#include "coordinator/core/events.h"
#include "coordinator/core/job_runs.h"
#include "coordinator/core/layers.h"
#include "coordinator/core/log_reads.h"
#include "coordinator/core/options.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/reconciler.h"
#include "coordinator/core/step_digests.h"
#include "coordinator/core/submissions.h"
#include "coordinator/core/tokens.h"
#include "coordinator/core/traces.h"

namespace cairn {

class ClusterCore {
 public:
  // options: valid. incarnation: random, new for each start.
  ClusterCore(const CoordinatorOptions& options, uint64_t incarnation, const StoredState& stored, absl::Time now);
  ClusterCore(const ClusterCore&) = delete;
  ClusterCore& operator=(const ClusterCore&) = delete;

  Effects Step(const Event& event, absl::Time now);

  // Queries change nothing. Errors: NOT_FOUND, PERMISSION_DENIED.
  absl::StatusOr<v1::JobStatus> GetJob(const v1::GetJobRequest& request, absl::Time now,
                                       const Requester& who = {}) const {
    return ground_.jobs.GetJob(request, now, who);
  }
  absl::StatusOr<v1::JobStatus> GetJob(JobId id, absl::Time now) const;
  std::optional<v1::JobState> StateOf(JobId id) const;  // nullopt: there is no such job
  // Those of `who`, newest first; without the model's layers and the placements.
  v1::ListJobsResponse ListJobs(absl::Time now, const Requester& who = {}) const {
    return ground_.jobs.ListJobs(now, who);
  }
  // The same jobs, each as CopyForRow (job_extract.h).
  std::vector<v1::JobStatus> JobRows(absl::Time now) const { return ground_.jobs.JobRows(now); }
  v1::ListNodesResponse ListNodes() const { return ground_.nodes.List(); }
  // Those of jobs that `who` may not use are left out; of one such job: an error.
  absl::StatusOr<v1::ListEventsResponse> ListEvents(const v1::ListEventsRequest& request,
                                                    const Requester& who = {}) const;
  // Whether `who` may read lines of the job, or (0) all lines, of this process' log. Errors: NOT_FOUND too.
  absl::Status CheckLogAccess(uint64_t job_id, const Requester& who) const {
    return log_reads_.CheckAccess(job_id, who);
  }
  const Tokens& tokens() const { return tokens_; }

 private:
  void Dispatch(const Event& event);
  void DeliverRaised();  // hands domain events to the parts that handle them, until none is left
  void Dispatch(const DomainEvent& event);
  void OnTick();
  void OnNodeUp(const NodeUp& event);
  void OnNodeSays(const NodeSays& event);
  void OnMessage(ClusterNode& node, const v1::NodeMessage& message);
  void OnSessionClosed(const SessionClosed& event);
  void OnDeath(const Membership::Death& death, bool stored);
  void ReleaseWork(const NodeName& worker);

  // From the ground up (component.h).
  Ground ground_;
  Tokens tokens_;
  Endings endings_;
  PartitionLayer partitions_;
  WorkerLayer workers_;
  OutputLayer outputs_;
  Reasons reasons_;
  Submissions submissions_;
  JobRuns runs_;
  Reconciler reconciler_;
  LogReads log_reads_;
  Traces traces_;
  StepDigests step_digests_;
};

}  // namespace cairn
