// The end of a job and what is after it: how it ends, what it lacks, and how long it is kept.
//
// Users name a job by its number or by its name. By name an action takes the one job of that name that it fits; which
// of several it would be is never left to chance.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/limits.h"
#include "common/base/text.h"
#include "coordinator/cluster_core.h"

namespace cairn {
namespace {

constexpr size_t kJobsNamedMax = 10;  // in one message

std::string WhichText(const Job& job) { return absl::StrFormat("%d (%s)", job.id(), StateText(job.state())); }

// "3 (succeeded), 7 (running)"
std::string ListText(const std::vector<Job*>& jobs) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < std::min(jobs.size(), kJobsNamedMax); ++i) parts.push_back(WhichText(*jobs[i]));
  if (jobs.size() > kJobsNamedMax) parts.push_back(absl::StrCat("and ", jobs.size() - kJobsNamedMax, " more"));
  return absl::StrJoin(parts, ", ");
}

void AddText(const std::string& more, std::string* text) {
  if (!more.empty()) absl::StrAppend(text, text->empty() ? "" : "; ", more);
}

}  // namespace

// ---- by name ----

// The only job of that name for which `fits` holds. `action`: "be deleted". Errors: NOT_FOUND says which there are;
// FAILED_PRECONDITION names those that fit.
absl::StatusOr<Job*> ClusterCore::FindOnly(const std::string& name, const char* action, bool (Job::*fits)() const) {
  std::vector<Job*> named, fitting;
  for (auto& [id, job] : jobs_) {
    if (job.status.spec().name() != name) continue;
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

void ClusterCore::OnCancel(const CancelJob& event) {
  const absl::StatusOr<Job*> job =
      event.job.job_id() != 0 ? Find(event.job.job_id()) : FindOnly(event.job.name(), "be cancelled", &Job::unfinished);
  if (!job.ok()) return ReplyError(event.reply, job.status());
  if (*job == nullptr) return ReplyError(event.reply, GetJob(event.job, now_).status());
  if (!(*job)->finished()) EndJob(**job, v1::CANCELLED, "cancelled by a user");
  Emit(Reply{event.reply, absl::OkStatus(), StatusOf(**job)});
}

void ClusterCore::OnDelete(const DeleteJob& event) {
  const absl::StatusOr<Job*> found =
      event.job.job_id() != 0 ? Find(event.job.job_id()) : FindOnly(event.job.name(), "be deleted", &Job::finished);
  if (!found.ok()) return ReplyError(event.reply, found.status());
  const Job* job = *found;
  if (job != nullptr && !job->finished()) {
    return ReplyError(event.reply, absl::FailedPreconditionError(absl::StrFormat("job %d is %s; cancel it first",
                                                                                 job->id(), StateText(job->state()))));
  }
  v1::DeleteJobResponse response;
  if (job != nullptr) {
    response.set_job_id(job->id());
    Log("job %d: \"%s\" is deleted", job->id(), job->status.spec().name());
    Forget(job->id());
  }
  Emit(Reply{event.reply, absl::OkStatus(), std::move(response)});
}

// ---- the end ----

// Something that the job asked for is given up, such as a file.
void ClusterCore::NoteShortfall(Job& job, int epoch, const char* callback, const std::string& text) {
  AddNote(job, epoch, callback, text);
  if (job.files_missing++ == 0)
    job.file_missing = absl::StrFormat("epoch %d: %s: %s", epoch + 1, callback, CutUtf8(text, kErrorTextMax));
}

// Whether the loss is finite, by the newest figures. Right after our own start those of the running epoch are not here
// yet: then it is not said to be finite again.
void ClusterCore::NoteFinite(Job& job) {
  int epoch = job.status.epochs_size() - 1;
  const v1::MetricSums* running = job.progress->NewestTrain(&epoch);
  const v1::MetricSums* newest = running;
  if (running == nullptr && job.status.epochs_size() > 0) newest = &job.status.epochs().rbegin()->train();
  if (newest == nullptr) return;
  const bool finite = std::isfinite(newest->loss());
  if (finite == !job.status.has_not_finite_step() || (finite && running == nullptr)) return;
  if (finite) {
    job.status.clear_not_finite_step();
    TellText(job, false, "the loss is finite again");
  } else {
    // A short epoch may have closed with the same report that tells of the next.
    int closed = std::min(epoch, job.status.epochs_size());
    while (closed > 0 && !std::isfinite(job.status.epochs(closed - 1).train().loss())) --closed;
    const int64_t seen = std::max(job.progress->step() - 1, epoch * job.status.steps_per_epoch());
    const int64_t latest = closed < epoch ? (closed + 1) * job.status.steps_per_epoch() - 1 : seen;
    job.status.set_not_finite_step(std::min(seen, latest));
    TellText(job, true, std::string(absl::StripPrefix(NotFiniteText(job), "warning: ")));
  }
  StoreJob(job);
}

// What the job asked for and did not get, though all its steps are done; empty: nothing. variable: of its weights, that
// is not finite.
std::string ClusterCore::ShortfallText(const Job& job, const std::string& variable) const {
  std::string text;
  if (!variable.empty())
    AddText(absl::StrFormat("its weights are not finite (\"%s\" is the first variable): they are of no use", variable),
            &text);
  const v1::MetricSums validation =
      job.status.epochs().empty() ? v1::MetricSums() : job.status.epochs().rbegin()->validation();
  if (!job.has_best && !std::isfinite(validation.loss())) AddText("the last validation's loss is not finite", &text);
  AddText(job.file_missing, &text);
  if (job.files_missing > 1) absl::StrAppendFormat(&text, " (and %d more, see its notes)", job.files_missing - 1);
  if (!job.status.checkpoint_error().empty()) {
    AddText(absl::StrCat("the last checkpoint was not written: ", job.status.checkpoint_error()), &text);
  }
  return text;
}

// All steps are done and the digest is taken.
void ClusterCore::EndComplete(Job& job, const std::string& variable_not_finite) {
  std::string reason = ShortfallText(job, variable_not_finite);
  const bool plain = reason.empty() && (job.has_best || !job.status.has_not_finite_step());
  AddText(LastingText(job), &reason);
  EndJob(job, plain ? v1::SUCCEEDED : v1::ENDED_WITH_ERRORS, std::move(reason));
}

void ClusterCore::EndJob(Job& job, v1::JobState state, std::string reason) {
  if (job.progress && job.active()) job.progress->Fill(now_, job.status);
  double examples = 0, seconds = 0;
  for (const v1::EpochResult& epoch : job.status.epochs()) {
    if (epoch.seconds() <= 0) continue;  // not known
    examples += static_cast<double>(epoch.train().examples());
    seconds += epoch.seconds();
  }
  job.status.clear_images_per_second();
  if (seconds > 0) job.status.set_images_per_second(examples / seconds);  // over the whole run
  Transition(job, state);
  job.status.set_reason(std::move(reason));
  job.status.set_finished_unix_ms(absl::ToUnixMillis(now_));
  job.status.clear_replicas();
  const bool keep_weights = job.ran();
  if (!keep_weights) job.status.clear_partitions();
  job.progress.reset();
  job.checked.reset();
  job.awaiting_ready = false;
  job.finalize_worker.clear();
  if (state == v1::SUCCEEDED) RemoveBackup(job);
  if (keep_weights && !IsComplete(state)) {  // they can be exported, also after a restart of their ps
    NewGeneration(job);
    job.awaiting_ready = false;
  } else {
    StoreJob(job);
    HostAll(job, false);
  }
  const std::string digest = job.status.digest().empty() ? "" : absl::StrCat(", digest ", job.status.digest());
  if (state == v1::FAILED || state == v1::ENDED_WITH_ERRORS) {
    Warn("job %d: %s%s: %s", job.id(), StateText(state), digest, job.status.reason());
  } else {
    Log("job %d: %s%s", job.id(), StateText(state), digest);
  }
  DropFromNodes(job.id(), v1::WORKER);
  if (!keep_weights) DropFromNodes(job.id(), v1::PS);
  reschedule_ = true;
}

// A node that is away says what it holds when it comes back, and is told then.
void ClusterCore::DropFromNodes(uint64_t job_id, v1::Role role) {
  for (ClusterNode* node : members_.Connected(role)) {
    if (role == v1::WORKER && node->running.erase(job_id) == 0) continue;
    node->hosting.erase(job_id);
    Send(*node, MakeDropJob(job_id));
  }
}

void ClusterCore::Forget(uint64_t job_id) {
  Emit(Store{absl::StrCat(kJobKeyPrefix, job_id), std::nullopt});
  for (Store& epoch : stored_epochs_.Forget(job_id)) Emit(std::move(epoch));
  DropFromNodes(job_id, v1::PS);
  usage_.Forget(job_id);
  jobs_.erase(job_id);
  changed_.insert(job_id);
}

// ---- afterwards ----

// Why a job that has ended is forgotten now; empty: it is kept. `newer`: jobs without weights that ended later.
std::string ClusterCore::ForgetReason(const Job& job, int newer) const {
  const absl::Duration age_max = options_.retention.AgeMax(job.state());
  const absl::Duration age = now_ - absl::FromUnixMillis(job.status.finished_unix_ms());
  if (age > age_max)
    return absl::StrFormat("%s more than %s ago", StateText(job.state()), absl::FormatDuration(age_max));
  if (job.status.partitions_size() > 0 || newer < options_.retention.without_weights) return "";
  return absl::StrFormat("%s, without weights, and %d such jobs have ended later", StateText(job.state()), newer);
}

void ClusterCore::ForgetEnded() {
  std::vector<const Job*> ended;
  for (const auto& [id, job] : jobs_) {
    if (job.finished()) ended.push_back(&job);
  }
  std::sort(ended.begin(), ended.end(), [](const Job* a, const Job* b) {
    return std::make_pair(a->status.finished_unix_ms(), a->id()) >
           std::make_pair(b->status.finished_unix_ms(), b->id());
  });
  int without_weights = 0;
  for (const Job* job : ended) {
    const std::string why = ForgetReason(*job, without_weights);
    without_weights += job->status.partitions_size() == 0;
    if (why.empty()) continue;
    Log("job %d: \"%s\" is forgotten (--keep-ended-jobs): %s", job->id(), job->status.spec().name(), why);
    Forget(job->id());
  }
}

// Whether there is room for one more job when it will have ended. RESOURCE_EXHAUSTED says what to do.
absl::Status ClusterCore::CheckRoomForEnded() const {
  std::vector<std::string> oldest;
  int ended = 0;
  for (const auto& [id, job] : jobs_) {
    if (!job.finished()) continue;
    if (++ended <= 3) oldest.push_back(absl::StrFormat("%d \"%s\"", id, job.status.spec().name()));
  }
  if (ended < kEndedJobsMax) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrFormat("%d jobs that have ended are kept, the most there can be; delete some with `cairn delete ID` "
                      "(the oldest: %s), or start the coordinator with "
                      "--keep-ended-jobs for a shorter time",
                      ended, absl::StrJoin(oldest, ", ")));
}

}  // namespace cairn
