// JobTable: all jobs of the cluster, as stored and shown, and the resources that they use on the nodes.
//
// Not thread-safe; one core owns it. Invariants:
//   1. A job's state changes only in Transition (job_state.h).
//   2. Usage counts a job as it was last stored.
//   3. Events of a job are stored by the end of the Step.
//   4. Job numbers are never reused.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"
#include "coordinator/core/job.h"
#include "coordinator/core/options.h"
#include "coordinator/core/requester.h"
#include "coordinator/core/step_context.h"
#include "coordinator/core/stored_state.h"
#include "coordinator/core/usage.h"

namespace cairn {

class JobTable {
 public:
  // step outlives it.
  JobTable(const CoordinatorOptions& options, const StoredState& stored, StepContext& step);

  Job* Find(uint64_t job_id);  // null: there is none
  // By number, else the newest job of that name that is `who`'s (with_weights: the newest that has weights).
  const Job* Find(const v1::GetJobRequest& request, const Requester& who = {}) const;
  Job& At(uint64_t job_id) { return jobs_.at(job_id); }
  const std::map<uint64_t, Job>& all() const { return jobs_; }  // by number, so by age
  std::map<uint64_t, Job>& all() { return jobs_; }
  // The only job of that name that is `who`'s and for which `fits` holds. `action`: "be deleted". Errors: NOT_FOUND
  // lists the jobs of that name; FAILED_PRECONDITION lists those that fit.
  absl::StatusOr<Job*> FindOnly(const std::string& name, const char* action, bool (Job::*fits)() const,
                                const Requester& who = {});
  // By number, else FindOnly; null: no job has the number. Errors: PERMISSION_DENIED too.
  absl::StatusOr<Job*> FindToChange(const v1::GetJobRequest& request, const char* action, bool (Job::*fits)() const,
                                    const Requester& who);
  // Jobs that run, then those that start, those that wait, and those that have ended.
  std::vector<uint64_t> ByUrgency() const;

  Job& Add();  // a new job, in no state yet
  uint64_t next_id() const { return next_job_id_; }
  // False: job_state.h does not allow it; nothing is changed, and a warning is logged.
  bool Transition(Job& job, v1::JobState to);
  void Save(const Job& job);
  void Changed(const Job& job) { changed_.insert(job.id()); }  // its watchers are told at the end of the Step
  void Forget(uint64_t job_id);

  // Tells what happened to the job: a log line, and one of its events.
  void TellText(Job& job, bool warning, const std::string& text);
  // The event only, without a log line: for what happens to hundreds of ended jobs at once.
  void NoteEvent(Job& job, bool warning, const std::string& text);
  template <typename... Args>
  void Tell(Job& job, const absl::FormatSpec<Args...>& format, const Args&... args) {
    TellText(job, false, absl::StrFormat(format, args...));
  }
  template <typename... Args>
  void TellWarning(Job& job, const absl::FormatSpec<Args...>& format, const Args&... args) {
    TellText(job, true, absl::StrFormat(format, args...));
  }

  // A Step begins: orphaned keys are deleted before an event can store something under one of them.
  void Begin();
  // A Step ends: first jobs with new events are stored, then watchers are told of the changes.
  void SaveTold();
  void EmitChanged();

  const Usage& usage() const { return usage_; }

  // Job::status, with the fields that are computed while the job runs.
  v1::JobStatus StatusOf(const Job& job) const { return StatusOf(job, step_.now()); }
  v1::JobStatus StatusOf(const Job& job, absl::Time now) const;
  // Errors: NOT_FOUND, PERMISSION_DENIED.
  absl::StatusOr<v1::JobStatus> GetJob(const v1::GetJobRequest& request, absl::Time now,
                                       const Requester& who = {}) const;
  v1::ListJobsResponse ListJobs(absl::Time now, const Requester& who = {}) const;
  std::vector<v1::JobStatus> JobRows(absl::Time now) const;

 private:
  void CheckAgain(Job& job);
  void FillRunning(const Job& job, absl::Time now, v1::JobStatus& status) const;

  const CoordinatorOptions options_;
  StepContext& step_;
  std::map<uint64_t, Job> jobs_;
  uint64_t next_job_id_ = 1;
  Usage usage_;
  StoredEpochs stored_epochs_;
  std::vector<std::string> orphans_;
  std::set<uint64_t> changed_;
  std::set<uint64_t> events_unstored_;  // jobs with events that are newer than their last Store
};

}  // namespace cairn
