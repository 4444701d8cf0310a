// What callbacks make of a job: decisions at the end of its epochs, and the weights that it ends with. Their files:
// cluster_files.cc.
//
// A job that waits at the end of epochs (WaitsAtEpochs) has epochs_open > 0: its replicas begin no step of a later
// epoch. When all figures of an epoch are in, and the checkpoint of its end where one is needed, the callbacks decide
// (callbacks.h). The decision is stored, then sent. It stands whatever happens to the partitions later: an epoch is
// decided once, though its steps may be done again.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/text.h"
#include "common/model/callback_check.h"
#include "common/model/epoch_rates.h"
#include "common/model/strategy_check.h"
#include "coordinator/callbacks.h"
#include "coordinator/cluster_core.h"

namespace cairn {
namespace {

// For the checkpoint of an epoch's end, beyond the figures. The chief says when it is written, or cannot be; one that
// is lost has another in its place, which writes it. This is for one that hangs on its disk.
constexpr absl::Duration kCheckpointWait = absl::Minutes(30);
// An asynchronous chief comes to the end of an epoch once. Its checkpoint may be of a moment at which others had not
// begun with the epoch: then no other comes.
constexpr absl::Duration kLastCheckpointWait = absl::Seconds(15);

bool HasReduceRate(const v1::JobSpec& spec) {
  return std::any_of(spec.callbacks().begin(), spec.callbacks().end(),
                     [](const v1::Callback& c) { return c.has_reduce_lr_on_plateau(); });
}

}  // namespace

// ---- rates ----

float ClusterCore::RateAt(const Job& job, int64_t step) const {
  EpochRates rates(job.status.spec(), job.status.steps_per_epoch());
  rates.Decide(job.learning_rates);
  return rates.At(std::max<int64_t>(step, 0));
}

// ---- decisions ----

// The job begins, or goes on from a checkpoint: epochs that are done are nothing to decide of.
void ClusterCore::OpenEpochs(Job& job, int done) {
  if (!WaitsAtEpochs(job.status.spec())) return;
  while (job.status.epochs_open() < done + 1) {
    const int epoch = job.status.epochs_open();
    if (HasReduceRate(job.status.spec()))
      job.learning_rates.push_back(RateAt(job, epoch * job.status.steps_per_epoch()));
    job.status.set_epochs_open(epoch + 1);
  }
}

bool ClusterCore::Undecided(const Job& job) const {
  return job.status.epochs_open() > 0 && !job.stopped_early && job.status.epochs_open() <= job.progress->epochs();
}

void ClusterCore::DecideEpochs(Job& job) {
  while (job.running() && Undecided(job) && job.status.epochs_open() <= job.status.epochs_size()) {
    const int epoch = job.status.epochs_open() - 1;
    if (NeedsEpochCheckpoints(job.status.spec()) && CheckpointOf(job, epoch) == nullptr) {
      if (CheckpointMayCome(job, epoch)) return;
      AddNote(job, epoch, "checkpoints", "there is no checkpoint of this epoch's end; see checkpoint_error");
    }
    if (FilesHoldUp(job, epoch)) return;
    job.checkpoint_wanted_since = absl::InfiniteFuture();
    job.checkpoint_heard = absl::InfinitePast();
    Decide(job, epoch);
  }
}

// Whether the chief may still be at the checkpoint of this epoch's end.
bool ClusterCore::CheckpointMayCome(Job& job, int epoch) {
  const int64_t end = (epoch + 1) * job.status.steps_per_epoch(), begin = end - job.status.steps_per_epoch();
  if (job.progress->step() < end) {  // the steps are done once more, and then the checkpoint is written
    job.checkpoint_wanted_since = absl::InfiniteFuture();
    return true;
  }
  job.checkpoint_wanted_since = std::min(job.checkpoint_wanted_since, now_);
  const int64_t failed = job.checkpoint_failed_step;
  if (job.synchronous() ? failed == end : failed > begin && failed <= end) return false;
  if (!job.synchronous() && job.checkpoint_heard != absl::InfinitePast() &&
      now_ - std::max(job.checkpoint_heard, job.checkpoint_wanted_since) >= kLastCheckpointWait) {
    return false;
  }
  // A chief reports its last step when it is done with the checkpoint of it, or has given that up. One that took its
  // place may be at it.
  const std::vector<bool>& finished = job.progress->finished();
  const bool over = std::all_of(finished.begin(), finished.end(), [](bool f) { return f; });
  return now_ - job.checkpoint_wanted_since < (over ? kEndTimeout : kCheckpointWait);
}

// A chief that was named when it had done all its steps takes the last checkpoint then; the one before it may have been
// lost with its own. The others were reported as done long before.
bool ClusterCore::LastCheckpointMayCome(const Job& job) const {
  if (job.late_chief_since == absl::InfiniteFuture()) return false;
  const auto& known = job.status.checkpoints();
  const bool there = std::any_of(known.begin(), known.end(),
                                 [&](const auto& k) { return !k.best() && k.step() >= job.status.total_steps(); });
  return !there && now_ - job.late_chief_since < kEndTimeout;
}

// Asks for the model files of this epoch, before another one begins. True: that one has to wait, for these or for those
// of before.
bool ClusterCore::FilesHoldUp(Job& job, int epoch) {
  const float rate = RateAt(job, (epoch + 1) * job.status.steps_per_epoch() - 1);
  auto callbacks = job.callbacks;  // nothing is decided yet
  const EpochDecision decision = DecideEpoch(job.status, epoch, rate, &callbacks);
  if (std::exchange(job.saves_of_epoch, epoch) != epoch && !decision.saves.empty())
    AddSavesOf(job, epoch, decision.saves);
  return !decision.stop && !decision.failed && SavesHoldUp(job);
}

void ClusterCore::AddSavesOf(Job& job, int epoch, const std::vector<std::string>& paths) {
  const v1::CheckpointInfo* info = CheckpointOf(job, epoch);
  const auto& notes = job.status.notes();
  for (const std::string& path : paths) {
    const bool saved =
        std::any_of(notes.begin(), notes.end(), [&](const v1::CallbackNote& n) {  // before a restart of ours
          return n.epoch() == epoch && n.text() == SavedNote(path);
        });
    if (saved) continue;
    if (info != nullptr) {
      AddSave(job, info->step(), path);
    } else {
      const std::string& error = job.status.checkpoint_error();
      NoteShortfall(job, epoch, "model_checkpoint",
                    absl::StrCat("not saved: ", path, ": there is no checkpoint of this epoch's end",
                                 error.empty() ? "" : ": ", error));
    }
  }
  StoreJob(job);
  SendSaves(job);
}

void ClusterCore::Decide(Job& job, int epoch) {
  const int64_t end = (epoch + 1) * job.status.steps_per_epoch();
  const float rate = RateAt(job, end - 1);
  EpochDecision decision = DecideEpoch(job.status, epoch, rate, &job.callbacks);
  for (v1::CallbackNote& note : decision.notes) {
    Log("job %d: epoch %d: %s: %s", job.id(), epoch + 1, note.callback(), note.text());
    AddNote(job, std::move(note));
  }
  if (HasReduceRate(job.status.spec())) {
    while (static_cast<int>(job.learning_rates.size()) <= epoch) job.learning_rates.push_back(rate);
    job.learning_rates.resize(static_cast<size_t>(epoch) + 1);
    job.learning_rates.push_back(decision.learning_rate.value_or(rate));
  }
  if (decision.stop) {
    job.stopped_early = true;
    job.status.set_total_steps(std::min(job.status.total_steps(), end));
    job.progress->EndAfter(epoch + 1);
  } else {
    job.status.set_epochs_open(job.status.epochs_open() + 1);
  }
  ++job.assignment;
  StoreJob(job);
  Changed(job);
  if (decision.failed) {
    SendSummaries(job);  // the worker writes them before it is told to drop the job
    return EndJob(job, v1::FAILED, decision.reason);
  }
  SendSaves(job);
  SendAssignments(job);
}

// What tells a worker's assignment from one before or after a decision.
int64_t ClusterCore::EpochsCode(const Job& job) const {
  return job.stopped_early ? -job.status.total_steps() : job.status.epochs_open();
}

// ---- the end ----

// Why the job ended before its last epoch; empty: it did not.
std::string ClusterCore::StopText(const Job& job) const {
  if (!job.stopped_early) return "";
  for (int i = job.status.notes_size() - 1; i >= 0; --i) {
    const v1::CallbackNote& note = job.status.notes(i);
    if (note.callback() != "early_stopping" || !absl::EndsWith(note.text(), kStopNote)) continue;
    return absl::StrFormat("stopped early after epoch %d: %s", note.epoch() + 1,
                           absl::StripSuffix(note.text(), kStopNote));
  }
  return "";
}

// That of the best epoch, the copy that is kept where there is one; null: none is there.
const v1::CheckpointInfo* ClusterCore::BestCheckpoint(const Job& job) {
  const int best = BestEpoch(job.status.spec(), job.callbacks);
  if (best < 0) return nullptr;
  const v1::CheckpointInfo* info = CheckpointOf(job, best);
  const int64_t step = info != nullptr ? info->step() : (best + 1) * job.status.steps_per_epoch();
  for (const v1::CheckpointInfo& known : job.status.checkpoints()) {
    if (known.best() && known.step() == step) info = &known;
  }
  return info;
}

// Where they can be read: the copy that is kept, then the epoch's own.
std::vector<std::string> ClusterCore::BestPaths(const Job& job) {
  std::vector<std::string> paths;
  const v1::CheckpointInfo* best = BestCheckpoint(job);
  if (best == nullptr) return paths;
  paths.push_back(best->path());
  for (const v1::CheckpointInfo& known : job.status.checkpoints()) {
    if (known.step() == best->step() && known.path() != best->path()) paths.push_back(known.path());
  }
  return paths;
}

// early_stopping with restore_best_weights: the partitions are filled from the best epoch's checkpoint. False: the
// weights are those that the job ends with.
bool ClusterCore::RestoreBest(Job& job) {
  const int best = BestEpoch(job.status.spec(), job.callbacks);
  if (best < 0 || best + 1 >= job.progress->epochs() || job.best_given_up) return false;
  const v1::CheckpointInfo* info = BestCheckpoint(job);
  if (info == nullptr) {
    NoteShortfall(job, best, "early_stopping", "its weights were to be restored, but there is no checkpoint of them");
    return false;
  }
  AddNote(job, best, "early_stopping", "the best epoch; its weights are restored");
  Tell(job, "ends with the weights of epoch %d, from %s", best + 1, info->path());
  job.restore_from = BestPaths(job);
  job.restores_best = true;
  job.restore_worker.clear();
  job.restore_attempts = 0;
  Transition(job, v1::STARTING);
  job.version.assign(job.version.size(), 0);
  NewGeneration(job);
  return true;
}

// The best epoch's weights cannot be read. The job ends with those of its last epoch where the partitions have them
// still, else it goes on from another checkpoint. False: there is none.
bool ClusterCore::EndWithoutBest(Job& job, const std::string& why) {
  const std::string path = job.restore_from.front();
  const uint64_t updates_of_each = static_cast<uint64_t>(job.status.total_steps());
  const int32_t units = job.synchronous() ? 1 : job.status.spec().replicas() / LocalSyncOf(job.status.spec());
  const uint64_t last = updates_of_each * static_cast<uint64_t>(units);
  const bool there =
      std::all_of(job.at.begin(), job.at.end(), [&](const v1::HeldPartition& at) { return at.version() == last; });
  std::vector<std::string> others = CheckpointsToGoOnFrom(job);
  std::erase(others, path);
  if (!there && others.empty()) return false;
  NoteShortfall(
      job, std::max(0, BestEpoch(job.status.spec(), job.callbacks)), "early_stopping",
      absl::StrCat("its weights are not restored from ", path, ", the job ends with those of its last epoch: ", why));
  Warn("job %d: %s", job.id(), job.status.notes().rbegin()->text());
  job.restores_best = false;
  job.best_given_up = true;
  job.restore_attempts = 0;
  job.restore_from.clear();
  if (there) {
    Transition(job, v1::FINALIZING);
    job.version.assign(job.version.size(), last);  // an attempt that came half way is seen by it
  } else {
    job.restore_from = std::move(others);
  }
  NewGeneration(job);
  return true;
}

// Early stopping knows which epoch is the best: it is not only by the figure that that is decided.
void ClusterCore::MarkBestEpoch(Job& job) {
  const int best = BestEpoch(job.status.spec(), job.callbacks);
  const v1::CheckpointInfo* info = best < 0 || best >= job.status.epochs_size() ? nullptr : CheckpointOf(job, best);
  if (info == nullptr) return;
  for (const v1::CheckpointInfo& known : job.status.checkpoints()) {
    if (known.best() && known.step() == info->step()) return;
  }
  const v1::EarlyStopping& stopping = *RestoresBest(job.status.spec());
  SendMarkBest(job, info->step(), FigureOf(job.status, job.status.epochs(best), stopping.monitor()).value_or(0));
}

// backup_and_restore: its checkpoints, those of the run before too, are not needed after a success.
void ClusterCore::RemoveBackup(Job& job) {
  const v1::BackupAndRestore* backup = BackupOf(job.status.spec());
  if (backup == nullptr || !backup->delete_checkpoint()) return;
  const ClusterNode* worker = ChiefOrAnother(job);
  if (worker == nullptr) return;
  v1::CoordinatorMessage message = MakeDropJob(job.id());
  v1::DropJob& drop = *message.mutable_drop_job();
  drop.set_remove_checkpoints_of_job(true);
  *drop.mutable_spec() = job.status.spec();
  drop.set_submitted_unix_ms(job.status.submitted_unix_ms());
  Send(*worker, std::move(message));
  job.status.clear_checkpoints();
}

}  // namespace cairn
