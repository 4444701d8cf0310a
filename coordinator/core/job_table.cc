#include "coordinator/core/job_table.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/model/job_check.h"
#include "coordinator/core/job_extract.h"
#include "coordinator/core/job_facts.h"
#include "coordinator/core/job_state.h"
#include "coordinator/core/limits.h"

namespace cairn {
namespace {

std::string WhichText(const Job& job) { return absl::StrFormat("%d (%s)", job.id(), StateText(job.state())); }

// "3 (succeeded), 7 (running)"
std::string ListText(const std::vector<Job*>& jobs) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < std::min(jobs.size(), kJobsNamedMax); ++i) parts.push_back(WhichText(*jobs[i]));
  if (jobs.size() > kJobsNamedMax) parts.push_back(absl::StrCat("and ", jobs.size() - kJobsNamedMax, " more"));
  return absl::StrJoin(parts, ", ");
}

}  // namespace

JobTable::JobTable(const CoordinatorOptions& options, const StoredState& stored, StepContext& step)
    : options_(options),
      step_(step),
      next_job_id_(std::max<uint64_t>(1, stored.cluster.next_job_id())),
      stored_epochs_(stored),
      orphans_(stored.orphans) {
  for (const v1::StoredJob& stored_job : stored.jobs) {
    Job& job = jobs_[stored_job.status().job_id()] = LoadJob(stored_job, step.now());
    next_job_id_ = std::max(next_job_id_, job.id() + 1);
    if (job.queued()) CheckAgain(job);
    usage_.Note(job);
    if (job.finished()) continue;
    AddEvent(job, step.now(), false, "the coordinator was restarted, or another one leads now");
    events_unstored_.insert(job.id());
  }
}

// Recomputes what is derived from the spec, which is not stored. A newer version may reject what an older one accepted.
void JobTable::CheckAgain(Job& job) {
  if (auto checked = CheckJob(job.status.spec()); checked.ok()) {
    job.queueing.space_size = checked->graph.space_size();
  } else {
    Transition(job, v1::FAILED);
    job.status.set_reason(std::string(checked.status().message()));
    job.status.set_finished_unix_ms(absl::ToUnixMillis(step_.now()));
  }
}

// ---- queries ----

Job* JobTable::Find(uint64_t job_id) {
  auto it = jobs_.find(job_id);
  return it == jobs_.end() ? nullptr : &it->second;
}

const Job* JobTable::Find(const v1::GetJobRequest& request, const Requester& who) const {
  if (request.job_id() != 0) {
    auto it = jobs_.find(request.job_id());
    return it == jobs_.end() ? nullptr : &it->second;
  }
  for (auto it = jobs_.rbegin(); it != jobs_.rend(); ++it) {
    const Job& job = it->second;
    if (request.name().empty() || job.status.spec().name() != request.name() || !who.MayUse(job.status)) continue;
    if (!request.with_weights() || job.has_weights()) return &job;
  }
  return nullptr;
}

v1::JobStatus JobTable::StatusOf(const Job& job, absl::Time now) const {
  v1::JobStatus status = job.status;
  FillRunning(job, now, status);
  return status;
}

// Fills in the fields that are not kept in job.status while the job runs.
void JobTable::FillRunning(const Job& job, absl::Time now, v1::JobStatus& status) const {
  if (!job.progress || !job.active()) return;
  job.progress->Fill(now, status);
  status.set_learning_rate(RateAt(job, std::min(status.step(), std::max<int64_t>(status.total_steps() - 1, 0))));
}

absl::StatusOr<v1::JobStatus> JobTable::GetJob(const v1::GetJobRequest& request, absl::Time now,
                                               const Requester& who) const {
  const Job* job = Find(request, who);
  if (job == nullptr) {
    if (request.job_id() != 0) return absl::NotFoundError(absl::StrCat("there is no job ", request.job_id()));
    return absl::NotFoundError(absl::StrCat(request.with_weights() ? "no job named \"" : "there is no job named \"",
                                            request.name(),
                                            request.with_weights() ? "\" has weights; see `cairn jobs`" : "\""));
  }
  CAIRN_RETURN_IF_ERROR(who.Check(job->status));
  return StatusOf(*job, std::max(now, step_.now()));
}

v1::ListJobsResponse JobTable::ListJobs(absl::Time now, const Requester& who) const {
  v1::ListJobsResponse response;
  response.set_retention(options_.retention.Text());
  for (auto it = jobs_.rbegin(); it != jobs_.rend(); ++it) {
    if (!who.MayUse(it->second.status)) continue;
    v1::JobStatus& status = *response.add_jobs();
    CopyForList(it->second.status, &status);
    FillRunning(it->second, std::max(now, step_.now()), status);
  }
  return response;
}

std::vector<v1::JobStatus> JobTable::JobRows(absl::Time now) const {
  std::vector<v1::JobStatus> rows;
  rows.reserve(jobs_.size());
  for (auto it = jobs_.rbegin(); it != jobs_.rend(); ++it) {
    CopyForRow(it->second.status, &rows.emplace_back());
    FillRunning(it->second, std::max(now, step_.now()), rows.back());
  }
  return rows;
}

// ---- changes ----

void JobTable::Begin() {
  for (std::string& key : std::exchange(orphans_, {})) step_.Emit(Store{std::move(key), std::nullopt});
}

void JobTable::SaveTold() {
  for (uint64_t id : std::exchange(events_unstored_, {})) {
    if (const Job* job = Find(id); job != nullptr) Save(*job);
  }
}

void JobTable::EmitChanged() {
  for (uint64_t id : std::exchange(changed_, {})) step_.Emit(JobChanged{JobId(id)});
}

Job& JobTable::Add() {
  const uint64_t id = next_job_id_++;
  Job& job = jobs_[id];
  job.status.set_job_id(id);
  return job;
}

void JobTable::Forget(uint64_t job_id) {
  step_.Emit(Store{absl::StrCat(kJobKeyPrefix, job_id), std::nullopt});
  for (Store& epoch : stored_epochs_.Forget(job_id)) step_.Emit(std::move(epoch));
  usage_.Forget(job_id);
  jobs_.erase(job_id);
  changed_.insert(job_id);
}

void JobTable::Save(const Job& job) {
  step_.Raise(CopiesChanged{job.id()});
  events_unstored_.erase(job.id());
  usage_.Note(job);
  v1::StoredJob stored = job.ToStored();
  if (job.progress && job.active()) job.progress->Fill(step_.now(), *stored.mutable_status());
  stored.mutable_status()->clear_images_per_second();
  if (job.finished() && job.status.has_images_per_second())
    stored.mutable_status()->set_images_per_second(job.status.images_per_second());
  for (Store& epoch : stored_epochs_.TakeOut(stored)) step_.Emit(std::move(epoch));
  step_.Emit(Store{absl::StrCat(kJobKeyPrefix, job.id()), stored.SerializeAsString()});
  changed_.insert(job.id());
}

// ---- by name ----

// Returns the only job of that name for which `fits` holds. `action`: "be deleted". Errors: NOT_FOUND lists the
// existing jobs; FAILED_PRECONDITION lists several that fit.
absl::StatusOr<Job*> JobTable::FindToChange(const v1::GetJobRequest& request, const char* action,
                                            bool (Job::*fits)() const, const Requester& who) {
  if (request.job_id() == 0) return FindOnly(request.name(), action, fits, who);
  Job* const job = Find(request.job_id());
  if (job != nullptr) CAIRN_RETURN_IF_ERROR(who.Check(job->status));
  return job;
}

absl::StatusOr<Job*> JobTable::FindOnly(const std::string& name, const char* action, bool (Job::*fits)() const,
                                        const Requester& who) {
  std::vector<Job*> named, fitting;
  for (auto& [id, job] : jobs_) {
    if (job.status.spec().name() != name || !who.MayUse(job.status)) continue;
    named.push_back(&job);
    if ((job.*fits)()) fitting.push_back(&job);
  }
  if (fitting.size() == 1) return fitting.front();
  if (named.empty()) return absl::NotFoundError(absl::StrFormat("there is no job named \"%s\"", name));
  if (fitting.empty()) {
    return absl::NotFoundError(absl::StrFormat("no job named \"%s\" can %s; there %s %s", name, action,
                                               named.size() == 1 ? "is" : "are", ListText(named)));
  }
  return absl::FailedPreconditionError(absl::StrFormat("%d jobs named \"%s\" can %s: %s; name one by its number",
                                                       fitting.size(), name, action, ListText(fitting)));
}

void JobTable::TellText(Job& job, bool warning, const std::string& text) {
  step_.Tell(LogLine{warning, OfJob(job.id()), text});
  NoteEvent(job, warning, text);
}

void JobTable::NoteEvent(Job& job, bool warning, const std::string& text) {
  AddEvent(job, step_.now(), warning, text);
  events_unstored_.insert(job.id());
}

bool JobTable::Transition(Job& job, v1::JobState to) {
  if (MayFollow(job.state(), to)) {
    job.status.set_state(to);
    return true;
  }
  step_.Warn(OfJob(job.id()), "a change of its state from %s to %s is refused", v1::JobState_Name(job.state()),
             v1::JobState_Name(to));
  return false;
}

// ---- order ----

// Running jobs first, then starting ones, queued ones, and those that have ended.
std::vector<uint64_t> JobTable::ByUrgency() const {
  const auto rank = [](const Job& job) { return job.finished() ? 3 : job.queued() ? 2 : job.starting() ? 1 : 0; };
  std::vector<std::pair<int, uint64_t>> ranked;
  for (const auto& [id, job] : jobs_) ranked.emplace_back(rank(job), id);
  std::sort(ranked.begin(), ranked.end());
  std::vector<uint64_t> ids;
  ids.reserve(ranked.size());
  for (const auto& [first, id] : ranked) ids.push_back(id);
  return ids;
}

}  // namespace cairn
