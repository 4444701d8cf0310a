#include "coordinator/core/endings.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/limits.h"
#include "common/model/callback_check.h"
#include "common/model/epoch_rates.h"
#include "common/model/strategy_check.h"
#include "coordinator/core/callbacks.h"
#include "coordinator/core/job_facts.h"
#include "coordinator/core/limits.h"
#include "coordinator/core/partition_copies.h"

namespace cairn {
namespace {

void AddText(const std::string& more, std::string* text) {
  if (!more.empty()) absl::StrAppend(text, text->empty() ? "" : "; ", more);
}

}  // namespace

// backup_and_restore: after a success its checkpoints, including those of the previous run, are not needed.
void Endings::RemoveBackup(Job& job) {
  const v1::BackupAndRestore* backup = BackupOf(job.status.spec());
  if (backup == nullptr || !backup->delete_checkpoint()) return;
  const ClusterNode* worker = candidates_.ChiefOrAnother(job);
  if (worker == nullptr) return;
  v1::CoordinatorMessage message = MakeDropJob(job.id());
  v1::DropJob& drop = *message.mutable_drop_job();
  drop.set_remove_checkpoints_of_job(true);
  *drop.mutable_spec() = job.status.spec();
  drop.set_submitted_unix_ms(job.status.submitted_unix_ms());
  step_.Send(*worker, std::move(message));
  job.status.clear_checkpoints();
}

void Endings::OnCancel(const CancelJob& event) {
  const absl::StatusOr<Job*> job = jobs_.FindToChange(event.job, "be cancelled", &Job::unfinished, event.who);
  if (!job.ok()) return step_.ReplyError(event.reply, job.status());
  if (*job == nullptr) return step_.ReplyError(event.reply, jobs_.GetJob(event.job, step_.now()).status());
  if (!(*job)->finished())
    End(**job, v1::CANCELLED,
        event.who.user.empty() ? "cancelled by a user" : absl::StrCat("cancelled by ", event.who.user));
  step_.Emit(Reply{event.reply, absl::OkStatus(), jobs_.StatusOf(**job)});
}

void Endings::OnDelete(const DeleteJob& event) {
  const absl::StatusOr<Job*> found = jobs_.FindToChange(event.job, "be deleted", &Job::finished, event.who);
  if (!found.ok()) return step_.ReplyError(event.reply, found.status());
  const Job* job = *found;
  if (job != nullptr && !job->finished()) {
    return step_.ReplyError(event.reply, absl::FailedPreconditionError(absl::StrFormat(
                                             "job %d is %s; cancel it first", job->id(), StateText(job->state()))));
  }
  v1::DeleteJobResponse response;
  if (job != nullptr) {
    response.set_job_id(job->id());
    step_.Log(OfJob(job->id()), "\"%s\" is deleted", job->status.spec().name());
    Forget(job->id());
  }
  step_.Emit(Reply{event.reply, absl::OkStatus(), std::move(response)});
}

// Whether the loss is finite, by the newest figures. Just after the coordinator's start the figures of the running
// epoch are missing; until they arrive the loss is not reported as finite again.
void Endings::NoteFinite(Job& job) {
  int epoch = job.status.epochs_size() - 1;
  const v1::MetricSums* running = job.progress->NewestTrain(&epoch);
  const v1::MetricSums* newest = running;
  if (running == nullptr && job.status.epochs_size() > 0) newest = &job.status.epochs().rbegin()->train();
  if (newest == nullptr) return;
  const bool finite = std::isfinite(newest->loss());
  if (finite == !job.status.has_not_finite_step() || (finite && running == nullptr)) return;
  if (finite) {
    job.status.clear_not_finite_step();
    jobs_.TellText(job, false, "the loss is finite again");
  } else {
    // A short epoch may have closed with the report that also covers the next.
    int closed = std::min(epoch, job.status.epochs_size());
    while (closed > 0 && !std::isfinite(job.status.epochs(closed - 1).train().loss())) --closed;
    const int64_t seen = std::max(job.progress->step() - 1, epoch * job.status.steps_per_epoch());
    const int64_t latest = closed < epoch ? (closed + 1) * job.status.steps_per_epoch() - 1 : seen;
    job.status.set_not_finite_step(std::min(seen, latest));
    jobs_.TellText(job, true, std::string(absl::StripPrefix(NotFiniteText(job), "warning: ")));
  }
  jobs_.Save(job);
}

// What the job requested but did not get although all its steps are done; empty: nothing. variable: one of its
// variables that is not finite.
std::string Endings::ShortfallText(const Job& job, const std::string& variable) const {
  std::string text;
  if (!variable.empty())
    AddText(absl::StrFormat("its weights are not finite (\"%s\" is the first variable): they cannot be used", variable),
            &text);
  const v1::MetricSums validation =
      job.status.epochs().empty() ? v1::MetricSums() : job.status.epochs().rbegin()->validation();
  if (!job.best.restored && !std::isfinite(validation.loss()))
    AddText("the last validation's loss is not finite", &text);
  AddText(job.outputs.files.first_missing, &text);
  if (job.outputs.files.missing > 1)
    absl::StrAppendFormat(&text, " (and %d more, see its notes)", job.outputs.files.missing - 1);
  if (!job.status.checkpoint_error().empty()) {
    AddText(absl::StrCat("the last checkpoint was not written: ", job.status.checkpoint_error()), &text);
  }
  return text;
}

// All steps are done and the digest is taken.
void Endings::EndComplete(Job& job, const std::string& variable_not_finite) {
  std::string reason = ShortfallText(job, variable_not_finite);
  const bool plain = reason.empty() && (job.best.restored || !job.status.has_not_finite_step());
  AddText(LastingText(job), &reason);
  End(job, plain ? v1::SUCCEEDED : v1::ENDED_WITH_ERRORS, std::move(reason));
}

void Endings::End(Job& job, v1::JobState state, std::string reason) {
  if (job.progress && job.active()) job.status = jobs_.StatusOf(job);  // as it was last seen running
  if (!jobs_.Transition(job, state)) return;
  double examples = 0, seconds = 0;
  for (const v1::EpochResult& epoch : job.status.epochs()) {
    if (epoch.seconds() <= 0) continue;                       // unknown
    examples += epoch.images_per_second() * epoch.seconds();  // those that were computed in this time
    seconds += epoch.seconds();
  }
  job.status.clear_images_per_second();
  if (seconds > 0) job.status.set_images_per_second(examples / seconds);  // over the whole run
  job.status.set_reason(std::move(reason));
  job.status.set_finished_unix_ms(absl::ToUnixMillis(step_.now()));
  job.status.clear_replicas();
  const bool keep_weights = job.ran();
  if (!keep_weights) job.status.clear_partitions();
  job.progress.reset();
  job.partitions.hosting.EndWait();
  job.end.Forget();
  if (state == v1::SUCCEEDED) RemoveBackup(job);
  if (keep_weights && !IsComplete(state)) {  // they can be exported, even after a restart of their ps
    hosting_.NewGeneration(job);
  } else {
    jobs_.Save(job);
    hosting_.HostAll(job, false);
  }
  const std::string digest = job.status.digest().empty() ? "" : absl::StrCat(", digest ", job.status.digest());
  if (state == v1::FAILED || state == v1::ENDED_WITH_ERRORS) {
    step_.Warn(OfJob(job.id()), "%s%s: %s", StateText(state), digest, job.status.reason());
  } else {
    step_.Log(OfJob(job.id()), "%s%s", StateText(state), digest);
  }
  hosting_.DropFromNodes(job.id(), v1::WORKER, state == v1::CANCELLED);
  if (!keep_weights) hosting_.DropFromNodes(job.id(), v1::PS);
  step_.Raise(SlotsChanged{});
}

void Endings::Forget(uint64_t job_id) {
  jobs_.Forget(job_id);
  hosting_.DropFromNodes(job_id, v1::PS);
}

// ---- after the end ----

// Why an ended job is forgotten now; empty: it is kept. `newer`: the number of jobs without weights that ended later.
std::string Endings::ForgetReason(const Job& job, int newer) const {
  const absl::Duration age_max = options_.retention.AgeMax(job.state());
  const absl::Duration age = step_.now() - absl::FromUnixMillis(job.status.finished_unix_ms());
  if (age > age_max)
    return absl::StrFormat("%s more than %s ago", StateText(job.state()), absl::FormatDuration(age_max));
  if (job.status.partitions_size() > 0 || newer < options_.retention.without_weights) return "";
  return absl::StrFormat("%s, without weights, and %d such jobs have ended later", StateText(job.state()), newer);
}

void Endings::ForgetEnded() {
  std::vector<const Job*> ended;
  for (const auto& [id, job] : jobs_.all()) {
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
    step_.Log(OfJob(job->id()), "\"%s\" is forgotten (--keep-ended-jobs): %s", job->status.spec().name(), why);
    Forget(job->id());
  }
}

// Whether there will be room for one more ended job. RESOURCE_EXHAUSTED says what to do.
absl::Status Endings::CheckRoomForEnded(const Requester& who) const {
  std::vector<std::string> oldest;
  int ended = 0;
  for (const auto& [id, job] : jobs_.all()) {
    if (!job.finished()) continue;
    ++ended;
    if (oldest.size() < 3 && who.MayUse(job.status))
      oldest.push_back(absl::StrFormat("%d \"%s\"", id, job.status.spec().name()));
  }
  if (ended < kEndedJobsMax) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrFormat("%d jobs that have ended are kept, the most there can be; delete some with `cairn delete ID`%s, "
                      "or start the coordinator with --keep-ended-jobs for a shorter time",
                      ended, oldest.empty() ? "" : absl::StrCat(" (the oldest: ", absl::StrJoin(oldest, ", "), ")")));
}

// Notes about a job that has run which stay relevant after its end.
std::string Endings::LastingText(const Job& job) const {
  std::string text = StopText(job);
  if (const std::string nothing = NothingToDoText(job); !nothing.empty())
    absl::StrAppend(&text, text.empty() ? "" : "; ", nothing);
  if (const std::string loss = NotFiniteText(job); !loss.empty())
    absl::StrAppend(&text, text.empty() ? "" : "; ", loss);
  if (const std::string bits = candidates_.BitsText(job); !bits.empty())
    absl::StrAppend(&text, text.empty() ? "" : "; ", bits);
  return text;
}

}  // namespace cairn
