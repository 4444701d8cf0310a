#include "coordinator/core/model_files.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/limits.h"
#include "common/base/text.h"
#include "common/model/callback_check.h"
#include "coordinator/core/callbacks.h"
#include "coordinator/core/job_facts.h"
#include "coordinator/core/limits.h"

namespace cairn {
namespace {

// How long to wait for an answer before another worker is asked. Below that, a disk is slow rather than unavailable.
constexpr absl::Duration kAnswerTimeout = absl::Minutes(5);
constexpr absl::Duration kAskAgainAfter = absl::Seconds(2);    // after an error; doubles for a model file
constexpr absl::Duration kRefusedTimeout = absl::Seconds(10);  // for summaries after the last step: five attempts
constexpr absl::Duration kStepFiguresEvery = absl::Seconds(1);
constexpr int kEpochsInMessage = 64;

int EpochOf(const Job& job, int64_t step) {
  return static_cast<int>(std::max<int64_t>(step - 1, 0) / std::max<int64_t>(1, job.status.steps_per_epoch()));
}

std::string GivenUpText(const std::string& error) { return error.empty() ? "no worker has answered" : error; }

}  // namespace

// ---- model files ----
void ModelFiles::AddSave(Job& job, int64_t step, std::string path) {
  const auto same = [&](const v1::SaveModel& s) { return s.path() == path; };
  if (!job.outputs.files.saves.empty() && same(job.outputs.files.saves.front())) job.outputs.files.failures = 0;
  std::erase_if(job.outputs.files.saves, same);  // the file would be written twice
  if (job.outputs.files.saves.size() >= kSavesMax) {
    NoteShortfall(
        job, EpochOf(job, job.outputs.files.saves.front().step()), "model_checkpoint",
        absl::StrCat("not saved: ", job.outputs.files.saves.front().path(), ": too many files wait to be written"));
    job.outputs.files.saves.erase(job.outputs.files.saves.begin());
    job.outputs.files.failures = 0;
  }
  v1::SaveModel& save = job.outputs.files.saves.emplace_back();
  save.set_job_id(job.id());
  save.set_step(step);
  save.set_path(std::move(path));
}

// A checkpoint was written: model files of its step are due.
void ModelFiles::SaveAtStep(Job& job, int64_t step) {
  for (std::string& path : SavesAtStep(job.status, step)) AddSave(job, step, std::move(path));
  SendSaves(job);
}

// Whether the next epoch has to wait for a model file, because with the checkpoints of that epoch the chief would
// remove the one from which the file is made. Keras too continues training only after the file is written. With a
// keep_max of 3 and files that take less than an epoch nothing waits.
bool ModelFiles::SavesHoldUp(Job& job) const {
  const v1::Checkpoints& rule = job.status.spec().checkpoints();
  const bool next = job.status.epochs_open() < job.progress->epochs();
  const int64_t begin = job.status.epochs_open() * job.status.steps_per_epoch(),
                end = begin + job.status.steps_per_epoch();
  const int64_t within = rule.every_steps() > 0 ? (end - 1) / rule.every_steps() - begin / rule.every_steps() : 0;
  const int64_t coming = within + 1;  // the one at its end
  const auto& known = job.status.checkpoints();
  const bool holds =
      next &&
      std::any_of(job.outputs.files.saves.begin(), job.outputs.files.saves.end(), [&](const v1::SaveModel& save) {
        const bool there = std::any_of(known.begin(), known.end(),
                                       [&](const auto& k) { return !k.best() && k.step() == save.step(); });
        const int64_t newer = std::count_if(known.begin(), known.end(),
                                            [&](const auto& k) { return !k.best() && k.step() > save.step(); });
        return there && newer + coming >= rule.keep_max();
      });
  job.outputs.files.waited_since =
      holds ? std::min(job.outputs.files.waited_since, step_.now()) : absl::InfiniteFuture();
  return holds && step_.now() - job.outputs.files.waited_since < kAnswerTimeout;
}

void ModelFiles::SendSaves(Job& job) {
  while (!job.outputs.files.saves.empty()) {
    if (!job.outputs.files.asked.worker.empty() && step_.now() < job.outputs.files.asked.until) return;
    if (step_.now() < job.outputs.files.asked.not_before) return;
    v1::SaveModel save = job.outputs.files.saves.front();
    const auto& known = job.status.checkpoints();
    const bool there = std::any_of(known.begin(), known.end(), [&](const auto& k) { return k.step() == save.step(); });
    const bool passed = std::any_of(known.begin(), known.end(), [&](const auto& k) { return k.step() > save.step(); });
    if (!there && !passed) return;  // it is being written
    if (!there) {                   // keep_max removed it while the file was retried
      const std::string why =
          job.outputs.files.failures > 0
              ? absl::StrCat(job.outputs.files.error, " (by now the checkpoint of step ", save.step(), " is removed)")
              : absl::StrCat(save.path(), ": there is no checkpoint of step ", save.step());
      NoteShortfall(job, EpochOf(job, save.step()), "model_checkpoint", absl::StrCat("not saved: ", why));
      step_.Warn(OfJob(job.id()), "model file not saved: %s", why);
      job.outputs.files.saves.erase(job.outputs.files.saves.begin());
      job.outputs.files.failures = 0;
      jobs_.Save(job);
      continue;
    }
    const ClusterNode* worker = candidates_.ChiefOrAnother(job);
    if (worker == nullptr) return;
    job.outputs.files.asked = {worker->name, step_.now() + kAnswerTimeout, absl::InfinitePast()};
    *save.mutable_spec() = job.status.spec();
    v1::CoordinatorMessage message;
    *message.mutable_save_model() = std::move(save);
    return step_.Send(*worker, std::move(message));
  }
}

void ModelFiles::OnModelSaved(const ClusterNode& node, const v1::ModelSaved& saved) {
  Job* job = jobs_.Find(saved.job_id());
  if (job == nullptr || !job->active()) return;
  if (job->outputs.files.saves.empty() || job->outputs.files.saves.front().path() != saved.path() ||
      job->outputs.files.saves.front().step() != saved.step()) {
    // The answer to an earlier request. If that was the last one, a newer step replaced the file: the worker is free
    // for it.
    if (job->outputs.files.asked.worker == node.name) {
      job->outputs.files.asked = {};
      job->outputs.files.failures = 0;
    }
    return SendSaves(*job);
  }
  const std::string path(CutUtf8(saved.path(), kFileErrorTextMax));
  if (!saved.error().empty() && job->outputs.files.asked.worker != node.name)
    return;  // too late: another worker is writing it
  if (!saved.error().empty() && ++job->outputs.files.failures < kSaveTriesMax) {
    job->outputs.files.error = std::string(CutUtf8(saved.error(), kFileErrorTextMax));
    const absl::Duration pause = kAskAgainAfter * (1 << (job->outputs.files.failures - 1));
    job->outputs.files.asked = {NodeName(), absl::InfinitePast(), step_.now() + pause};
    return step_.Warn(OfJob(job->id()), "worker \"%s\" did not write %s, retrying in %s: %s", node.name, path,
                      absl::FormatDuration(pause), job->outputs.files.error);
  }
  job->outputs.files.failures = 0;
  const int epoch = EpochOf(*job, saved.step());
  if (saved.error().empty()) {
    AddNote(*job, epoch, "model_checkpoint", SavedNote(path));
    step_.Log(OfJob(job->id()), "model file %s of step %d", path, saved.step());
  } else {
    NoteShortfall(*job, epoch, "model_checkpoint",
                  absl::StrCat("not saved: ", std::string(CutUtf8(saved.error(), kFileErrorTextMax))));
    step_.Warn(OfJob(job->id()), "worker \"%s\" wrote no model file: %s", node.name,
               CutUtf8(saved.error(), kFileErrorTextMax));
  }
  job->outputs.files.saves.erase(job->outputs.files.saves.begin());
  job->outputs.files.asked = {};
  jobs_.Save(*job);
  SendSaves(*job);
  if (job->running()) step_.Raise(JobAdvanced{job->id()});  // the next epoch may have waited for it
}

// ---- summaries ----

// Sends figures of the running epoch at intervals, for TensorBoard's update_freq.
void ModelFiles::NoteStepFigures(Job& job) {
  for (const v1::Callback& callback : job.status.spec().callbacks()) {
    const int64_t every = SaveSteps(callback.tensorboard().update_freq());
    const int64_t step = job.progress->step();
    if (every == 0 || step / every <= job.outputs.summaries.step_figures_until / every) continue;
    v1::JobStatus now = job.status;
    job.progress->Fill(step_.now(), now);
    if (now.epoch_sums().examples() == 0) continue;
    job.outputs.summaries.step_figures_until = step;
    v1::StepValidation& figures = job.outputs.summaries.step_figures.emplace_back();
    figures.set_step(step);
    *figures.mutable_sums() = now.epoch_sums();
    if (job.outputs.summaries.step_figures.size() <= kStepFiguresMax) continue;
    job.outputs.summaries.step_figures.erase(job.outputs.summaries.step_figures.begin());
    job.outputs.summaries.step_figures_sent -= job.outputs.summaries.step_figures_sent > 0;
  }
}

void ModelFiles::SendSummaries(Job& job) {
  if (!WritesSummaries(job.status.spec()) || !job.has_data()) return;
  const bool epochs_due = job.outputs.summaries.written < job.status.epochs_size();
  const bool steps_due =
      !job.outputs.summaries.step_figures.empty() && step_.now() >= job.outputs.summaries.step_figures_at;
  const auto& validations = job.status.validations();
  const bool validations_due = std::any_of(validations.begin(), validations.end(), [&](const auto& v) {
    return v.step() > job.outputs.summaries.validations_written;
  });
  if (!epochs_due && !steps_due && !validations_due) return;
  if (!job.outputs.summaries.asked.worker.empty() && step_.now() < job.outputs.summaries.asked.until) return;
  if (step_.now() < job.outputs.summaries.asked.not_before) return;
  const ClusterNode* worker = candidates_.ChiefOrAnother(job);
  if (worker == nullptr) return;
  v1::CoordinatorMessage message;
  v1::WriteSummaries& write = *message.mutable_write_summaries();
  write.set_job_id(job.id());
  *write.mutable_spec() = job.status.spec();
  write.set_submitted_unix_ms(job.status.submitted_unix_ms());
  const int end = std::min(job.status.epochs_size(), job.outputs.summaries.written + kEpochsInMessage);
  for (int i = job.outputs.summaries.written; i < end; ++i) *write.add_epochs() = job.status.epochs(i);
  for (const v1::StepValidation& v : validations) {
    if (v.step() > job.outputs.summaries.validations_written) *write.add_validations() = v;
    job.outputs.summaries.validations_sent = std::max(job.outputs.summaries.validations_sent, v.step());
  }
  write.mutable_train_steps()->Assign(job.outputs.summaries.step_figures.begin(),
                                      job.outputs.summaries.step_figures.end());
  job.outputs.summaries.step_figures_sent = job.outputs.summaries.step_figures.size();
  job.outputs.summaries.step_figures_at = step_.now() + kStepFiguresEvery;
  FillRoutes(job, write.mutable_routes());
  job.outputs.summaries.asked = {worker->name, step_.now() + kAnswerTimeout, absl::InfinitePast()};
  step_.Send(*worker, std::move(message));
}

void ModelFiles::OnSummariesWritten(const ClusterNode& node, const v1::SummariesWritten& written) {
  Job* job = jobs_.Find(written.job_id());
  if (job == nullptr || !job->active()) return;
  const bool asked = job->outputs.summaries.asked.worker == node.name;  // false: too late, another worker is writing it
  if (asked) job->outputs.summaries.asked = {};
  if (!written.error().empty()) {
    job->outputs.summaries.error = std::string(CutUtf8(written.error(), kFileErrorTextMax));
    const std::string error = absl::StrCat("not written: ", job->outputs.summaries.error);
    const auto& notes = job->status.notes();
    const bool news = std::none_of(notes.begin(), notes.end(), [&](const auto& n) { return n.text() == error; });
    if (news) AddNote(*job, std::max(0, job->status.epochs_size() - 1), "summaries", error);
    if (news) step_.Warn(OfJob(job->id()), "worker \"%s\": %s", node.name, error);
    job->outputs.summaries.asked.not_before = step_.now() + kAskAgainAfter;
    if (job->outputs.files.until != absl::InfiniteFuture() && job->outputs.files.saves.empty()) {
      job->outputs.files.until = std::min(job->outputs.files.until, step_.now() + kRefusedTimeout);
    }
    if (news) jobs_.Save(*job);
    return;
  }
  if (asked) {
    job->outputs.summaries.validations_written =
        std::max(job->outputs.summaries.validations_written, job->outputs.summaries.validations_sent);
    job->outputs.summaries.step_figures.erase(
        job->outputs.summaries.step_figures.begin(),
        job->outputs.summaries.step_figures.begin() + static_cast<int64_t>(job->outputs.summaries.step_figures_sent));
    job->outputs.summaries.step_figures_sent = 0;
  }
  if (written.epochs() > job->outputs.summaries.written && written.epochs() <= job->status.epochs_size()) {
    job->outputs.summaries.written = written.epochs();
    jobs_.Save(*job);
  }
  SendSummaries(*job);
}

void ModelFiles::Tick(Job& job) {
  if (job.status.spec().callbacks().empty()) return;
  SendSaves(job);
  SendSummaries(job);
}

// A worker is gone, or its session broke: its answers may be lost.
void ModelFiles::ReleaseWorker(const NodeName& worker) {
  for (auto& [id, job] : jobs_.all()) {
    if (job.outputs.files.asked.worker == worker) job.outputs.files.asked = {};
    if (job.outputs.summaries.asked.worker == worker) job.outputs.summaries.asked = {};
    job.outputs.checkpoints.ReleaseWorker(worker);
    if (job.active()) Tick(job);
  }
}

// All steps are done: returns whether the files are written too, or have been waited for long enough.
bool ModelFiles::AllWritten(Job& job) {
  Tick(job);
  const bool summaries =
      !WritesSummaries(job.status.spec()) || job.outputs.summaries.written >= job.status.epochs_size();
  if (summaries && job.outputs.files.saves.empty()) return true;
  if (job.outputs.files.until == absl::InfiniteFuture()) job.outputs.files.until = step_.now() + kEndTimeout;
  if (step_.now() < job.outputs.files.until) return false;
  jobs_.TellWarning(job, "ends without some of its files: %d model files and %d epochs of summaries were not written",
                    job.outputs.files.saves.size(),
                    summaries ? 0 : job.status.epochs_size() - job.outputs.summaries.written);
  for (const v1::SaveModel& save : job.outputs.files.saves) {
    NoteShortfall(job, EpochOf(job, save.step()), "model_checkpoint",
                  absl::StrCat("not saved: ", save.path(), ": ", GivenUpText(job.outputs.files.error)));
  }
  if (!summaries) {
    NoteShortfall(
        job, job.outputs.summaries.written, "summaries",
        absl::StrCat("the figures from this epoch on are not written: ", GivenUpText(job.outputs.summaries.error)));
  }
  job.outputs.files.saves.clear();
  job.outputs.summaries.written = job.status.epochs_size();
  return true;
}

}  // namespace cairn
