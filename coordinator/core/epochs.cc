#include "coordinator/core/epochs.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/callback_check.h"
#include "common/model/epoch_rates.h"
#include "common/model/strategy_check.h"
#include "coordinator/core/callbacks.h"
#include "coordinator/core/job_facts.h"

namespace cairn {
namespace {

// How long to wait for the checkpoint of an epoch's end, in addition to the figures. The chief reports when it is
// written, or cannot be; a lost chief is replaced by another, which writes it. The limit is for a chief that hangs on
// its disk.
constexpr absl::Duration kCheckpointWait = absl::Minutes(30);
// An asynchronous chief reaches the end of an epoch once. Its checkpoint may be from a moment at which other replicas
// had not begun the epoch. In that case no further one comes.
constexpr absl::Duration kLastCheckpointWait = absl::Seconds(15);

}  // namespace

void Epochs::DecideEpochs(Job& job) {
  while (job.running() && Undecided(job) && job.status.epochs_open() <= job.status.epochs_size()) {
    const int epoch = job.status.epochs_open() - 1;
    if (NeedsEpochCheckpoints(job.status.spec()) && CheckpointOf(job, epoch) == nullptr) {
      if (CheckpointMayCome(job, epoch)) return;
      AddNote(job, epoch, "checkpoints", "there is no checkpoint of this epoch's end; see checkpoint_error");
    }
    if (FilesHoldUp(job, epoch)) return;
    job.decisions.checkpoint_wanted_since = absl::InfiniteFuture();
    job.outputs.checkpoints.ForgetWord();
    Decide(job, epoch);
  }
}

// Whether the chief may still be writing the checkpoint of this epoch's end.
bool Epochs::CheckpointMayCome(Job& job, int epoch) {
  const int64_t end = (epoch + 1) * job.status.steps_per_epoch(), begin = end - job.status.steps_per_epoch();
  if (job.progress->step() < end) {  // the steps are repeated, and then the checkpoint is written
    job.decisions.checkpoint_wanted_since = absl::InfiniteFuture();
    return true;
  }
  job.decisions.checkpoint_wanted_since = std::min(job.decisions.checkpoint_wanted_since, step_.now());
  const int64_t failed = job.outputs.checkpoints.failed_step;
  if (job.synchronous() ? failed == end : failed > begin && failed <= end) return false;
  if (!job.synchronous() && job.outputs.checkpoints.heard != absl::InfinitePast() &&
      step_.now() - std::max(job.outputs.checkpoints.heard, job.decisions.checkpoint_wanted_since) >=
          kLastCheckpointWait) {
    return false;
  }
  // A chief reports its last step after it has written the checkpoint of that step, or given up. A chief that replaced
  // it may be writing it.
  const std::vector<bool>& finished = job.progress->replicas().finished();
  const bool over = std::all_of(finished.begin(), finished.end(), [](bool f) { return f; });
  return step_.now() - job.decisions.checkpoint_wanted_since < (over ? kEndTimeout : kCheckpointWait);
}

// A chief that was appointed after it had done all its steps writes the last checkpoint then; that of its predecessor
// may have been lost. The other replicas were reported as finished long before. The same applies to a chief whose
// remaining replicas other workers had finished: the report that it holds back was of a replica that moved away.
bool Epochs::LastCheckpointMayCome(const Job& job) const {
  if (job.outputs.checkpoints.late_chief_since == absl::InfiniteFuture()) return false;
  const int64_t end = job.progress ? job.progress->replicas().total_steps() : job.status.total_steps();
  if (job.outputs.checkpoints.chief_reported >= end) return false;
  if (!job.status.restored_from().empty() && job.status.restored_step() >= end) return false;  // it has none of its own
  const auto& known = job.status.checkpoints();
  const bool there =
      std::any_of(known.begin(), known.end(), [&](const auto& k) { return !k.best() && k.step() >= end; });
  return !there && step_.now() - job.outputs.checkpoints.late_chief_since < kEndTimeout;
}

// Requests the model files of this epoch before the next one begins. Returns true if the next epoch has to wait for
// them or for earlier files.
bool Epochs::FilesHoldUp(Job& job, int epoch) {
  const float rate = RateAt(job, (epoch + 1) * job.status.steps_per_epoch() - 1);
  auto callbacks = job.decisions.callbacks;  // a copy: nothing is decided yet
  const EpochDecision decision = DecideEpoch(job.status, epoch, rate, &callbacks);
  if (std::exchange(job.decisions.files_of_epoch, epoch) != epoch && !decision.saves.empty())
    AddSavesOf(job, epoch, decision.saves);
  return !decision.stop && !decision.failed && files_.SavesHoldUp(job);
}

void Epochs::AddSavesOf(Job& job, int epoch, const std::vector<std::string>& paths) {
  const v1::CheckpointInfo* info = CheckpointOf(job, epoch);
  const auto& notes = job.status.notes();
  for (const std::string& path : paths) {
    const bool saved =
        // From before the coordinator restarted.
        std::any_of(notes.begin(), notes.end(),
                    [&](const v1::CallbackNote& n) { return n.epoch() == epoch && n.text() == SavedNote(path); });
    if (saved) continue;
    if (info != nullptr) {
      files_.AddSave(job, info->step(), path);
    } else {
      const std::string& error = job.status.checkpoint_error();
      NoteShortfall(job, epoch, "model_checkpoint",
                    absl::StrCat("not saved: ", path, ": there is no checkpoint of this epoch's end",
                                 error.empty() ? "" : ": ", error));
    }
  }
  jobs_.Save(job);
  files_.SendSaves(job);
}

void Epochs::Decide(Job& job, int epoch) {
  const int64_t end = (epoch + 1) * job.status.steps_per_epoch();
  const float rate = RateAt(job, end - 1);
  EpochDecision decision = DecideEpoch(job.status, epoch, rate, &job.decisions.callbacks);
  for (v1::CallbackNote& note : decision.notes) {
    step_.Log(OfJob(job.id()), "epoch %d: %s: %s", epoch + 1, note.callback(), note.text());
    AddNote(job, std::move(note));
  }
  if (HasReduceRate(job.status.spec())) {
    while (static_cast<int>(job.decisions.learning_rates.size()) <= epoch) job.decisions.learning_rates.push_back(rate);
    job.decisions.learning_rates.resize(static_cast<size_t>(epoch) + 1);
    job.decisions.learning_rates.push_back(decision.learning_rate.value_or(rate));
  }
  if (decision.stop) {
    job.decisions.stopped_early = true;
    job.status.set_total_steps(std::min(job.status.total_steps(), end));
    job.progress->EndAfter(epoch + 1);
  } else {
    job.status.set_epochs_open(job.status.epochs_open() + 1);
  }
  ++job.assignment;
  jobs_.Save(job);
  jobs_.Changed(job);
  if (decision.failed) {
    files_.SendSummaries(job);  // the worker writes them before it is told to drop the job
    return endings_.End(job, v1::FAILED, decision.reason);
  }
  files_.SendSaves(job);
  assignments_.Send(job);
}

void Epochs::OnFigures(const ClusterNode& node, const v1::FiguresReport& report) {
  Job* job = jobs_.Find(report.job_id());
  if (job == nullptr || !job->running() || !job->progress) return;  // the job ended meanwhile
  if (job->status.partitions(0).primary() != node.name) return;     // no longer the primary
  if (job->partitions.hosting.awaiting_ready)
    return;  // a returning ps may be behind; it is asked again once that is settled
  if (report.generation() < std::max(job->partitions.rollback.generation, job->restoring.filled_in))
    return;  // from before the rollback
  const absl::StatusOr<bool> news = job->progress->TakeFigures(report, job->status, step_.now());
  if (!news.ok()) {
    return step_.Warn(OfJob(job->id()), "ps \"%s\" sent figures that do not fit it (%s); ignored", node.name,
                      news.status().message());
  }
  if (!*news) return;
  if (!report.epochs().empty() && report.epochs(0).epoch() < job->status.epochs_size()) SendFiguresStored(*job);
  step_.Raise(JobAdvanced{job->id()});
  jobs_.Changed(*job);
}

// The primary drops what is stored, and reports the rest at once.
void Epochs::SendFiguresStored(Job& job) {
  const ClusterNode* primary = nodes_.Find(job.status.partitions(0).primary());
  if (primary == nullptr) return;
  const uint64_t question = step_.NextRequestId();
  if (job.progress) job.progress->AskedForFigures(question, step_.now());
  v1::CoordinatorMessage message;
  v1::FiguresStored& stored = *message.mutable_figures_stored();
  stored.set_job_id(job.id());
  stored.set_epochs(job.status.epochs_size());
  stored.set_question(question);
  step_.Send(*primary, std::move(message));
}

}  // namespace cairn
