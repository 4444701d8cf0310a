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

namespace cairn {
namespace {

// Between a question and the next one to another worker. Less than that a disk is slow, not away.
constexpr absl::Duration kAnswerTimeout = absl::Minutes(5);
constexpr absl::Duration kAskAgainAfter = absl::Seconds(2);    // after an error; doubling for a model file
constexpr absl::Duration kRefusedTimeout = absl::Seconds(10);  // of summaries after the last step: five tries
constexpr int kSaveTriesMax = 4;                               // of a model file
constexpr absl::Duration kStepFiguresEvery = absl::Seconds(1);
constexpr int kEpochsInMessage = 64;
constexpr size_t kSavesMax = 64;
constexpr size_t kStepFiguresMax = 1000;
constexpr size_t kTextMax = 1000;

int EpochOf(const Job& job, int64_t step) {
  return static_cast<int>(std::max<int64_t>(step - 1, 0) / std::max<int64_t>(1, job.status.steps_per_epoch()));
}

std::string GivenUpText(const std::string& error) { return error.empty() ? "no worker has answered" : error; }

}  // namespace

// ---- model files ----
void ModelFiles::AddSave(Job& job, int64_t step, std::string path) {
  const auto same = [&](const v1::SaveModel& s) { return s.path() == path; };
  if (!job.saves.empty() && same(job.saves.front())) job.save_failures = 0;
  std::erase_if(job.saves, same);  // the file would be written twice
  if (job.saves.size() >= kSavesMax) {
    NoteShortfall(job, EpochOf(job, job.saves.front().step()), "model_checkpoint",
                  absl::StrCat("not saved: ", job.saves.front().path(), ": too many files wait to be written"));
    job.saves.erase(job.saves.begin());
    job.save_failures = 0;
  }
  v1::SaveModel& save = job.saves.emplace_back();
  save.set_job_id(job.id());
  save.set_step(step);
  save.set_path(std::move(path));
}

// A checkpoint was written: files of its step are due.
void ModelFiles::SaveAtStep(Job& job, int64_t step) {
  for (std::string& path : SavesAtStep(job.status, step)) AddSave(job, step, std::move(path));
  SendSaves(job);
}

// Whether the next epoch has to wait for a model file: with its checkpoints the chief would remove the one that the
// file is made of. Keras trains on after the file, too; with keep_max of 3 and files that are written within an epoch
// nothing waits.
bool ModelFiles::SavesHoldUp(Job& job) const {
  const v1::Checkpoints& rule = job.status.spec().checkpoints();
  const bool next = job.status.epochs_open() < job.progress->epochs();
  const int64_t begin = job.status.epochs_open() * job.status.steps_per_epoch(),
                end = begin + job.status.steps_per_epoch();
  const int64_t within = rule.every_steps() > 0 ? (end - 1) / rule.every_steps() - begin / rule.every_steps() : 0;
  const int64_t coming = within + 1;  // that of its end
  const auto& known = job.status.checkpoints();
  const bool holds =
      next && std::any_of(job.saves.begin(), job.saves.end(), [&](const v1::SaveModel& save) {
        const bool there = std::any_of(known.begin(), known.end(),
                                       [&](const auto& k) { return !k.best() && k.step() == save.step(); });
        const int64_t newer = std::count_if(known.begin(), known.end(),
                                            [&](const auto& k) { return !k.best() && k.step() > save.step(); });
        return there && newer + coming >= rule.keep_max();
      });
  job.saves_waited_since = holds ? std::min(job.saves_waited_since, step_.now()) : absl::InfiniteFuture();
  return holds && step_.now() - job.saves_waited_since < kAnswerTimeout;
}

void ModelFiles::SendSaves(Job& job) {
  while (!job.saves.empty()) {
    if (!job.save_asked.worker.empty() && step_.now() < job.save_asked.until) return;
    if (step_.now() < job.save_asked.not_before) return;
    v1::SaveModel save = job.saves.front();
    const auto& known = job.status.checkpoints();
    const bool there = std::any_of(known.begin(), known.end(), [&](const auto& k) { return k.step() == save.step(); });
    const bool passed = std::any_of(known.begin(), known.end(), [&](const auto& k) { return k.step() > save.step(); });
    if (!there && !passed) return;  // it is being written
    if (!there) {                   // keep_max, while the file was tried again
      const std::string why =
          job.save_failures > 0
              ? absl::StrCat(job.save_error, " (by now the checkpoint of step ", save.step(), " is removed)")
              : absl::StrCat(save.path(), ": there is no checkpoint of step ", save.step());
      NoteShortfall(job, EpochOf(job, save.step()), "model_checkpoint", absl::StrCat("not saved: ", why));
      step_.Warn("job %d: model file not saved: %s", job.id(), why);
      job.saves.erase(job.saves.begin());
      job.save_failures = 0;
      jobs_.Save(job);
      continue;
    }
    const ClusterNode* worker = candidates_.ChiefOrAnother(job);
    if (worker == nullptr) return;
    job.save_asked = {worker->name, step_.now() + kAnswerTimeout, absl::InfinitePast()};
    *save.mutable_spec() = job.status.spec();
    v1::CoordinatorMessage message;
    *message.mutable_save_model() = std::move(save);
    return step_.Send(*worker, std::move(message));
  }
}

void ModelFiles::OnModelSaved(const ClusterNode& node, const v1::ModelSaved& saved) {
  Job* job = jobs_.Find(saved.job_id());
  if (job == nullptr || !job->active()) return;
  if (job->saves.empty() || job->saves.front().path() != saved.path() || job->saves.front().step() != saved.step()) {
    // Of a question before. If it was the last one, a newer step took the place of that file: the worker is free for
    // it.
    if (job->save_asked.worker == node.name) {
      job->save_asked = {};
      job->save_failures = 0;
    }
    return SendSaves(*job);
  }
  const std::string path(CutUtf8(saved.path(), kTextMax));
  if (!saved.error().empty() && job->save_asked.worker != node.name) return;  // too late: another one is at it
  if (!saved.error().empty() && ++job->save_failures < kSaveTriesMax) {
    job->save_error = std::string(CutUtf8(saved.error(), kTextMax));
    const absl::Duration pause = kAskAgainAfter * (1 << (job->save_failures - 1));
    job->save_asked = {NodeName(), absl::InfinitePast(), step_.now() + pause};
    return step_.Warn("job %d: worker \"%s\" did not write %s, it is tried again in %s: %s", job->id(), node.name, path,
                      absl::FormatDuration(pause), job->save_error);
  }
  job->save_failures = 0;
  const int epoch = EpochOf(*job, saved.step());
  if (saved.error().empty()) {
    AddNote(*job, epoch, "model_checkpoint", SavedNote(path));
    step_.Log("job %d: model file %s of step %d", job->id(), path, saved.step());
  } else {
    NoteShortfall(*job, epoch, "model_checkpoint",
                  absl::StrCat("not saved: ", std::string(CutUtf8(saved.error(), kTextMax))));
    step_.Warn("job %d: worker \"%s\" wrote no model file: %s", job->id(), node.name, CutUtf8(saved.error(), kTextMax));
  }
  job->saves.erase(job->saves.begin());
  job->save_asked = {};
  jobs_.Save(*job);
  SendSaves(*job);
  if (job->running()) step_.Raise(JobAdvanced{job->id()});  // the next epoch may have waited for it
}

// ---- summaries ----

// Figures of the running epoch, now and then, for TensorBoard's update_freq.
void ModelFiles::NoteStepFigures(Job& job) {
  for (const v1::Callback& callback : job.status.spec().callbacks()) {
    const int64_t every = SaveSteps(callback.tensorboard().update_freq());
    const int64_t step = job.progress->step();
    if (every == 0 || step / every <= job.step_figures_until / every) continue;
    v1::JobStatus now = job.status;
    job.progress->Fill(step_.now(), now);
    if (now.epoch_sums().examples() == 0) continue;
    job.step_figures_until = step;
    v1::StepValidation& figures = job.step_figures.emplace_back();
    figures.set_step(step);
    *figures.mutable_sums() = now.epoch_sums();
    if (job.step_figures.size() <= kStepFiguresMax) continue;
    job.step_figures.erase(job.step_figures.begin());
    job.step_figures_sent -= job.step_figures_sent > 0;
  }
}

void ModelFiles::SendSummaries(Job& job) {
  if (!WritesSummaries(job.status.spec()) || !job.has_data()) return;
  const bool epochs_due = job.summaries_written < job.status.epochs_size();
  const bool steps_due = !job.step_figures.empty() && step_.now() >= job.step_figures_at;
  const auto& validations = job.status.validations();
  const bool validations_due = std::any_of(validations.begin(), validations.end(),
                                           [&](const auto& v) { return v.step() > job.validations_written; });
  if (!epochs_due && !steps_due && !validations_due) return;
  if (!job.summaries_asked.worker.empty() && step_.now() < job.summaries_asked.until) return;
  if (step_.now() < job.summaries_asked.not_before) return;
  const ClusterNode* worker = candidates_.ChiefOrAnother(job);
  if (worker == nullptr) return;
  v1::CoordinatorMessage message;
  v1::WriteSummaries& write = *message.mutable_write_summaries();
  write.set_job_id(job.id());
  *write.mutable_spec() = job.status.spec();
  write.set_submitted_unix_ms(job.status.submitted_unix_ms());
  const int end = std::min(job.status.epochs_size(), job.summaries_written + kEpochsInMessage);
  for (int i = job.summaries_written; i < end; ++i) *write.add_epochs() = job.status.epochs(i);
  for (const v1::StepValidation& v : validations) {
    if (v.step() > job.validations_written) *write.add_validations() = v;
    job.validations_sent = std::max(job.validations_sent, v.step());
  }
  write.mutable_train_steps()->Assign(job.step_figures.begin(), job.step_figures.end());
  job.step_figures_sent = job.step_figures.size();
  job.step_figures_at = step_.now() + kStepFiguresEvery;
  FillRoutes(job, write.mutable_routes());
  job.summaries_asked = {worker->name, step_.now() + kAnswerTimeout, absl::InfinitePast()};
  step_.Send(*worker, std::move(message));
}

void ModelFiles::OnSummariesWritten(const ClusterNode& node, const v1::SummariesWritten& written) {
  Job* job = jobs_.Find(written.job_id());
  if (job == nullptr || !job->active()) return;
  const bool asked = job->summaries_asked.worker == node.name;  // else: too late, it is written by another one
  if (asked) job->summaries_asked = {};
  if (!written.error().empty()) {
    job->summaries_error = std::string(CutUtf8(written.error(), kTextMax));
    const std::string error = absl::StrCat("not written: ", job->summaries_error);
    const auto& notes = job->status.notes();
    const bool news = std::none_of(notes.begin(), notes.end(), [&](const auto& n) { return n.text() == error; });
    if (news) AddNote(*job, std::max(0, job->status.epochs_size() - 1), "summaries", error);
    if (news) step_.Warn("job %d: worker \"%s\": %s", job->id(), node.name, error);
    job->summaries_asked.not_before = step_.now() + kAskAgainAfter;
    if (job->files_until != absl::InfiniteFuture() && job->saves.empty()) {
      job->files_until = std::min(job->files_until, step_.now() + kRefusedTimeout);
    }
    if (news) jobs_.Save(*job);
    return;
  }
  if (asked) {
    job->validations_written = std::max(job->validations_written, job->validations_sent);
    job->step_figures.erase(job->step_figures.begin(),
                            job->step_figures.begin() + static_cast<int64_t>(job->step_figures_sent));
    job->step_figures_sent = 0;
  }
  if (written.epochs() > job->summaries_written && written.epochs() <= job->status.epochs_size()) {
    job->summaries_written = written.epochs();
    jobs_.Save(*job);
  }
  SendSummaries(*job);
}

void ModelFiles::Tick(Job& job) {
  if (job.status.spec().callbacks().empty()) return;
  SendSaves(job);
  SendSummaries(job);
}

// A worker is gone, or its session broke: what it was asked may be lost with it.
void ModelFiles::ReleaseWorker(const NodeName& worker) {
  for (auto& [id, job] : jobs_.all()) {
    if (job.save_asked.worker == worker) job.save_asked = {};
    if (job.summaries_asked.worker == worker) job.summaries_asked = {};
    if (job.best_asked.worker == worker) job.best_asked = {};
    if (job.active()) Tick(job);
  }
}

// All steps are done: whether the files are written too, or were waited for long enough.
bool ModelFiles::AllWritten(Job& job) {
  Tick(job);
  const bool summaries = !WritesSummaries(job.status.spec()) || job.summaries_written >= job.status.epochs_size();
  if (summaries && job.saves.empty()) return true;
  if (job.files_until == absl::InfiniteFuture()) job.files_until = step_.now() + kEndTimeout;
  if (step_.now() < job.files_until) return false;
  jobs_.TellWarning(job, "ends without some of its files: %d model files and %d epochs of summaries were not written",
                    job.saves.size(), summaries ? 0 : job.status.epochs_size() - job.summaries_written);
  for (const v1::SaveModel& save : job.saves) {
    NoteShortfall(job, EpochOf(job, save.step()), "model_checkpoint",
                  absl::StrCat("not saved: ", save.path(), ": ", GivenUpText(job.save_error)));
  }
  if (!summaries) {
    NoteShortfall(job, job.summaries_written, "summaries",
                  absl::StrCat("the figures from this epoch on are not written: ", GivenUpText(job.summaries_error)));
  }
  job.saves.clear();
  job.summaries_written = job.status.epochs_size();
  return true;
}

}  // namespace cairn
