#include "coordinator/core/checkpoints.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "common/base/limits.h"
#include "common/base/text.h"
#include "common/model/callback_check.h"
#include "common/model/checkpoint_name.h"
#include "common/model/epoch_rates.h"
#include "common/model/job_outputs.h"
#include "common/model/strategy_check.h"
#include "coordinator/core/callbacks.h"
#include "coordinator/core/job_facts.h"
#include "coordinator/core/limits.h"

namespace cairn {
namespace {

// In addition to keep_max: those waiting for comparison (worker/checkpoint/checkpoint_book.h), the best one, and one
// being replaced.
constexpr int kCheckpointsExtra = 24;
// The interval of commands to keep the same checkpoint as the best.
constexpr absl::Duration kMarkAgainAfter = absl::Seconds(5);

// NaN: the epoch does not have the figure (yet).
double MonitoredFigure(const v1::JobStatus& status, const v1::EpochResult& epoch) {
  const std::string& monitor = status.spec().checkpoints().save_best();
  const bool validation = absl::StartsWith(monitor, "val_");
  const v1::MetricSums& sums = validation ? epoch.validation() : epoch.train();
  if (sums.examples() == 0 || (validation && sums.examples() < status.data().validation_examples())) return NAN;
  const absl::string_view name = absl::StripPrefix(monitor, "val_");
  if (name == "loss") return sums.loss() / static_cast<double>(sums.examples());
  for (int m = 0; m < FigureCount(status.spec()); ++m) {
    if (MetricName(status.spec(), m) == name) return MetricValue(status.spec(), m, sums);
  }
  return NAN;
}

int EpochOf(const Job& job, const v1::CheckpointInfo& info) {
  return static_cast<int>((info.step() - 1) / std::max<int64_t>(1, job.status.steps_per_epoch()));
}

// Whether a copy of it is kept as the best one.
bool IsKept(const Job& job, int64_t step) {
  const auto& known = job.status.checkpoints();
  return std::any_of(known.begin(), known.end(), [&](const auto& k) { return k.best() && k.step() == step; });
}

bool FitsJob(const Job& job, const v1::CheckpointInfo& info) {
  return info.step() >= 0 && info.step() <= job.status.total_steps();
}

int CheckpointsMax(const Job& job) { return job.status.spec().checkpoints().keep_max() + kCheckpointsExtra; }

// Refers to the epoch that is being decided. A former chief may report only now about an earlier epoch that was decided
// without it.
void NoteFailedCheckpoint(Job& job, int64_t step) {
  const int64_t end = job.status.epochs_open() * job.status.steps_per_epoch(),
                begin = end - job.status.steps_per_epoch();
  if (step > begin && step <= end)
    job.outputs.checkpoints.failed_step = std::max(job.outputs.checkpoints.failed_step, step);
}

}  // namespace

// ---- reports ----
void Checkpoints::OnCheckpoint(const ClusterNode& node, const v1::CheckpointReport& report) {
  Job* job = jobs_.Find(report.job_id());
  if (job == nullptr || job->queued() || !job->status.spec().has_checkpoints()) return;
  if (report.has_checkpoint() && !FitsJob(*job, report.checkpoint())) {
    return step_.Warn(OfJob(job->id()), "worker \"%s\" reports a checkpoint that does not fit it; ignored", node.name);
  }
  const auto& former = job->outputs.checkpoints.former_chiefs;
  const bool chief = node.name == job->status.chief();
  if (chief || std::find(former.begin(), former.end(), node.name) != former.end()) NoteSetAside(*job, report);
  if (!chief) return OnFormerChiefsCheckpoint(*job, node, report);
  auto& known = *job->status.mutable_checkpoints();
  if (report.has_checkpoint() && !report.checkpoint().best())
    job->outputs.checkpoints.ChiefReported(report.checkpoint().step(), job->synchronous());
  for (const int64_t step : report.deleted_steps()) {
    known.erase(
        std::remove_if(known.begin(), known.end(), [&](const auto& k) { return !k.best() && k.step() == step; }),
        known.end());
  }
  if (!report.error().empty()) {
    const int64_t step = report.has_checkpoint() ? report.checkpoint().step() : job->status.total_steps();
    const bool newer =
        std::any_of(known.begin(), known.end(), [&](const auto& k) { return !k.best() && k.step() >= step; });
    if (newer) {  // it, or a later one, was written by an earlier chief, or while other replicas were behind
      job->outputs.checkpoints.heard = step_.now();
      return;
    }
    job->status.set_checkpoint_error(std::string(CutUtf8(report.error(), kErrorTextMax)));
    job->outputs.checkpoints.error_step = report.has_checkpoint() ? step : 0;
    step_.Warn(OfJob(job->id()), "worker \"%s\" wrote no checkpoint: %s", node.name, job->status.checkpoint_error());
    if (report.has_checkpoint()) {  // the checkpoint of this step will not come any more
      NoteFailedCheckpoint(*job, report.checkpoint().step());
      job->outputs.checkpoints.heard = step_.now();
    }
  } else if (report.has_checkpoint()) {
    const v1::CheckpointInfo& info = report.checkpoint();
    // A chief repeats which one was the best in its time; the copy is now of a later one.
    const bool outdated =
        info.best() && info.step() != job->outputs.checkpoints.best_asked_step &&
        std::any_of(known.begin(), known.end(), [&](const auto& k) { return k.best() && k.step() != info.step(); });
    if (outdated) return;
    NoteWritten(*job, info);
    if (known.size() > CheckpointsMax(*job)) known.DeleteSubrange(0, known.size() - CheckpointsMax(*job));
    job->status.clear_checkpoint_error();
  }
  Changed(*job);
}

// A chief repeats them when it connects again. The events and the notes, which a long job keeps longer, show those that
// were told before this coordinator began.
void Checkpoints::NoteSetAside(Job& job, const v1::CheckpointReport& report) {
  const auto tell_once = [&](const std::string& text) {
    const auto same = [&](const auto& known) { return known.text() == text; };
    const auto& events = job.status.events();
    const auto& notes = job.status.notes();
    if (std::any_of(events.begin(), events.end(), same) || std::any_of(notes.begin(), notes.end(), same)) return;
    jobs_.TellText(job, /*warning=*/true, text);
    AddNote(job, std::max(0, job.status.epochs_size() - 1), "checkpoints", text);
  };
  std::set<std::string>& told = job.outputs.checkpoints.set_aside;
  for (const std::string& text : report.set_aside()) {
    if (told.size() >= kSetAsideToldMax) return;
    const std::string shown(CutUtf8(text, kEventTextMax));
    if (!told.insert(shown).second) continue;
    tell_once(shown);
    if (told.size() == kSetAsideToldMax)
      tell_once("further checkpoints of other jobs that are renamed are in the log of its chief alone");
  }
}

// A former chief may have written one while another worker took over its role. Only that step is taken from its report.
// What it says about the best checkpoint and about deletions dates from its time as chief; its successor knows better.
// A step that it could not write matters if it becomes chief again (TakeUnwritten). The step may not push out others
// until the present chief has found it on the disk.
void Checkpoints::OnFormerChiefsCheckpoint(Job& job, const ClusterNode& node, const v1::CheckpointReport& report) {
  const auto& former = job.outputs.checkpoints.former_chiefs;
  if (std::find(former.begin(), former.end(), node.name) == former.end()) {
    return step_.Warn(OfJob(job.id()), "worker \"%s\" reports a checkpoint, but it is not the chief; ignored",
                      node.name);
  }
  if (!report.has_checkpoint() || report.checkpoint().best()) return;
  if (!report.error().empty()) {
    return job.outputs.checkpoints.FormerChiefFailed(node.name, report.checkpoint().step(),
                                                     std::string(CutUtf8(report.error(), kErrorTextMax)));
  }
  const auto& known = job.status.checkpoints();
  const bool there = std::any_of(known.begin(), known.end(),
                                 [&](const auto& k) { return !k.best() && k.step() == report.checkpoint().step(); });
  if (there || known.size() >= CheckpointsMax(job)) return;
  NoteWritten(job, report.checkpoint());
  if (report.checkpoint().step() >= job.outputs.checkpoints.error_step) job.status.clear_checkpoint_error();
  Changed(job);
}

// The position is computed, whatever the worker reported.
void Checkpoints::NoteWritten(Job& job, v1::CheckpointInfo info) {
  info.set_path(CheckpointPath(job.status.spec(), info.step(), info.best()));
  auto& known = *job.status.mutable_checkpoints();
  const auto former = std::find_if(known.begin(), known.end(), [&](const auto& k) { return k.path() == info.path(); });
  const bool news = former == known.end();
  const bool again = !news && former->written_unix_ms() == info.written_unix_ms();
  info.set_compared(again && former->compared());  // the worker only repeats what it was told
  if (!news) known.erase(former);
  *known.Add() = info;
  std::stable_sort(known.begin(), known.end(),
                   [](const auto& a, const auto& b) { return a.written_unix_ms() < b.written_unix_ms(); });
  if (news) step_.Log(OfJob(job.id()), "checkpoint %s", info.path());
  if (!again && !info.best()) job.outputs.checkpoints.heard = step_.now();
  if (news && !info.best() && job.active()) files_.SaveAtStep(job, info.step());
}

void Checkpoints::Changed(Job& job) {
  jobs_.Save(job);
  ConsiderBest(job);
  if (job.active()) files_.SendSaves(job);
  if (job.running()) step_.Raise(JobAdvanced{job.id()});  // the end of an epoch may have waited for it
}

// ---- the best one ----
void Checkpoints::ConsiderBest(Job& job) {
  if (job.status.spec().checkpoints().save_best().empty()) return;
  const bool asked = job.outputs.checkpoints.best_asked.worker == job.status.chief() &&
                     step_.now() < job.outputs.checkpoints.best_asked.until;
  double monitored = NAN;
  const int64_t best = RestoresBest(job.status.spec()) != nullptr ? BestOfStopping(job, &monitored)
                                                                  : BestByFigure(job, asked, &monitored);
  const int64_t to_keep = best >= 0 ? best
                          : asked && !IsKept(job, job.outputs.checkpoints.best_asked_step)
                              ? job.outputs.checkpoints.best_asked_step
                              : -1;
  const bool news = NoteCompared(job, to_keep);
  const bool mark = best >= 0 && !(asked && job.outputs.checkpoints.best_asked_step == best);
  const ClusterNode* chief = TrainingChief(job);
  if (chief == nullptr || (!news && !mark)) return;
  // It may have got the job before another worker wrote the checkpoint, so it must learn of that first.
  step_.Send(*chief, MakeAssignReplicas(job, chief->name));
  if (mark) SendMarkBest(job, *chief, best, monitored);
}

// Early stopping determines the best epoch, which depends on more than the figure.
int64_t Checkpoints::BestOfStopping(const Job& job, double* monitored) const {
  const int best = BestEpoch(job.status.spec(), job.decisions.callbacks);
  const v1::CheckpointInfo* info = best < 0 || best >= job.status.epochs_size() ? nullptr : CheckpointOf(job, best);
  if (info == nullptr || IsKept(job, info->step())) return -1;
  const v1::EarlyStopping& stopping = *RestoresBest(job.status.spec());
  *monitored = FigureOf(job.status, job.status.epochs(best), stopping.monitor()).value_or(0);
  return info->step();
}

// asked: the chief may be keeping one as the best that it has not reported yet, and may have dropped the others.
int64_t Checkpoints::BestByFigure(const Job& job, bool asked, double* monitored) const {
  const bool largest = job.status.spec().checkpoints().mode() == v1::Checkpoints::MAX;
  const auto better = [&](double a, double b) { return largest ? a > b : a < b; };
  double best = NAN;
  for (const v1::CheckpointInfo& info : job.status.checkpoints()) {
    if (info.best()) best = info.monitored();
  }
  if (asked && (std::isnan(best) || better(job.outputs.checkpoints.best_asked_monitored, best)))
    best = job.outputs.checkpoints.best_asked_monitored;
  int64_t step = -1;
  for (const v1::CheckpointInfo& info : job.status.checkpoints()) {
    const int epoch = EpochOf(job, info);
    if (info.step() < 1 || epoch >= job.status.epochs_size() || CheckpointOf(job, epoch) != &info) continue;
    const double figure = MonitoredFigure(job.status, job.status.epochs(epoch));
    if (std::isnan(figure) || (!std::isnan(best) && !better(figure, best))) continue;
    best = *monitored = figure;
    step = info.step();
  }
  return step;
}

// Returns whether more checkpoints are compared than before. to_keep: the step that the chief is yet to keep; -1: none.
bool Checkpoints::NoteCompared(Job& job, int64_t to_keep) const {
  const bool validation = absl::StartsWith(job.status.spec().checkpoints().save_best(), "val_");
  bool more = false;
  for (v1::CheckpointInfo& info : *job.status.mutable_checkpoints()) {
    const int epoch = EpochOf(job, info);
    const bool awaits = epoch >= job.status.epochs_size() ||
                        (validation && job.progress && job.progress->AwaitsValidation(epoch, job.status));
    if (info.best() || info.compared() || awaits || info.step() == to_keep) continue;
    info.set_compared(true);
    more = true;
  }
  return more;
}

// null: there is no chief, or it does not have the job's current state. Assignments::Send calls this again.
const ClusterNode* Checkpoints::TrainingChief(const Job& job) const {
  const ClusterNode* chief = nodes_.Find(job.status.chief());
  if (chief == nullptr || !chief->connected() || !job.running() || job.partitions.hosting.awaiting_ready)
    return nullptr;
  const auto given = chief->work.running.find(job.id());
  const bool as_it_is = given != chief->work.running.end() && given->second.chief.value_or(false) &&
                        given->second.generation == job.status.generation() &&
                        given->second.replicas == job.ReplicasOf(chief->name);
  return as_it_is ? chief : nullptr;
}

// Repeated until the chief reports it as the best: its disk may have been full. A checkpoint that is not kept is later
// removed as the oldest.
void Checkpoints::SendMarkBest(Job& job, const ClusterNode& chief, int64_t step, double monitored) {
  job.outputs.checkpoints.best_asked = {chief.name, step_.now() + kMarkAgainAfter, absl::InfinitePast()};
  job.outputs.checkpoints.best_asked_step = step;
  job.outputs.checkpoints.best_asked_monitored = monitored;
  v1::CoordinatorMessage message;
  v1::MarkBest& mark = *message.mutable_mark_best();
  mark.set_job_id(job.id());
  mark.set_step(step);
  mark.set_monitored(monitored);
  step_.Send(chief, std::move(message));
}

}  // namespace cairn
