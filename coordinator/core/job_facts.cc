#include "coordinator/core/job_facts.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/base/text.h"
#include "common/model/callback_check.h"
#include "common/model/epoch_rates.h"
#include "coordinator/core/callbacks.h"
#include "coordinator/core/limits.h"

namespace cairn {

// ---- rates ----

float RateAt(const Job& job, int64_t step) {
  EpochRates rates(job.status.spec(), job.status.steps_per_epoch());
  rates.Decide(job.decisions.learning_rates);
  return rates.At(std::max<int64_t>(step, 0));
}

// ---- decisions ----

// The job begins, or resumes from a checkpoint: for epochs that are done there is nothing to decide.
void OpenEpochs(Job& job, int done) {
  if (!WaitsAtEpochs(job.status.spec())) return;
  while (job.status.epochs_open() < done + 1) {
    const int epoch = job.status.epochs_open();
    if (HasReduceRate(job.status.spec()))
      job.decisions.learning_rates.push_back(RateAt(job, epoch * job.status.steps_per_epoch()));
    job.status.set_epochs_open(epoch + 1);
  }
}

bool Undecided(const Job& job) {
  return job.status.epochs_open() > 0 && !job.decisions.stopped_early &&
         job.status.epochs_open() <= job.progress->epochs();
}

// Distinguishes a worker's assignment from those before and after a decision.
int64_t EpochsCode(const Job& job) {
  return job.decisions.stopped_early ? -job.status.total_steps() : job.status.epochs_open();
}

// ---- the end ----

// Why the job ended before its last epoch; empty if it did not.
std::string StopText(const Job& job) {
  if (!job.decisions.stopped_early) return "";
  for (int i = job.status.notes_size() - 1; i >= 0; --i) {
    const v1::CallbackNote& note = job.status.notes(i);
    if (note.callback() != "early_stopping" || !absl::EndsWith(note.text(), kStopNote)) continue;
    return absl::StrFormat("stopped early after epoch %d: %s", note.epoch() + 1,
                           absl::StripSuffix(note.text(), kStopNote));
  }
  return "";
}

std::string NothingToDoText(const Job& job) {
  const v1::JobStatus& status = job.status;
  if (status.restored_from().empty() || status.restored_step() < status.total_steps()) return "";
  const bool trained = std::any_of(status.epochs().begin(), status.epochs().end(),
                                   [](const v1::EpochResult& epoch) { return epoch.train().examples() > 0; });
  if (trained || status.total_steps() == 0) return "";
  return absl::StrFormat(
      "nothing to do: %s is at step %d of %d; `epochs` (%d) counts from step 0: raise it to train on",
      CutUtf8(status.restored_from(), kPathShownMax), status.restored_step(), status.total_steps(),
      status.spec().epochs());
}

const v1::CheckpointInfo* CheckpointOf(const Job& job, int epoch) {
  const int64_t begin = epoch * job.status.steps_per_epoch(), end = begin + job.status.steps_per_epoch();
  const v1::CheckpointInfo* found = nullptr;
  for (const v1::CheckpointInfo& info : job.status.checkpoints()) {
    if (info.best() || info.step() <= begin || info.step() > end) continue;
    if (job.synchronous() && info.step() != end) continue;
    if (found == nullptr || info.step() > found->step()) found = &info;
  }
  return found;
}

// The checkpoint of the best epoch, preferring the copy that is kept; null: there is none.
const v1::CheckpointInfo* BestCheckpoint(const Job& job) {
  const int best = BestEpoch(job.status.spec(), job.decisions.callbacks);
  if (best < 0) return nullptr;
  const v1::CheckpointInfo* info = CheckpointOf(job, best);
  const int64_t step = info != nullptr ? info->step() : (best + 1) * job.status.steps_per_epoch();
  for (const v1::CheckpointInfo& known : job.status.checkpoints()) {
    if (known.best() && known.step() == step) info = &known;
  }
  return info;
}

// Its readable locations: the copy that is kept, then the epoch's own checkpoint.
std::vector<std::string> BestPaths(const Job& job) {
  std::vector<std::string> paths;
  const v1::CheckpointInfo* best = BestCheckpoint(job);
  if (best == nullptr) return paths;
  paths.push_back(best->path());
  for (const v1::CheckpointInfo& known : job.status.checkpoints()) {
    if (known.step() == best->step() && known.path() != best->path()) paths.push_back(known.path());
  }
  return paths;
}

// Where the loss is not finite; empty: it is finite.
std::string NotFiniteText(const Job& job) {
  if (!job.status.has_not_finite_step()) return "";
  const int64_t step = job.status.not_finite_step();
  const std::string since =
      absl::StrFormat("since step %d (epoch %d)", step, step / std::max<int64_t>(1, job.status.steps_per_epoch()) + 1);
  if (job.best.restored)
    return absl::StrCat("the loss was not finite ", since, ", the weights are those of the best epoch");
  return absl::StrCat("warning: the loss is not finite ", since,
                      ": the weights cannot be used; lower optimizer.learning_rate, or check the data");
}

// Fields that the user left unset are taken from the checkpoint, so that the job continues unchanged.
void TakeFacts(const v1::CheckpointFacts& facts, v1::JobSpec& spec) {
  if (spec.replicas() == 0 && facts.replicas() > 0 && facts.replicas() <= spec.batch_size()) {
    spec.set_replicas(facts.replicas());
  }
  if (spec.partition_bytes() == 0 && facts.partition_bytes() > 0) spec.set_partition_bytes(facts.partition_bytes());
  // backup_and_restore: there is a checkpoint to resume from.
  const v1::BackupAndRestore* backup = BackupOf(spec);
  if (backup == nullptr || !absl::StartsWith(facts.path(), backup->backup_dir())) return;
  spec.set_resume_from(backup->backup_dir());
  spec.clear_initial_weights();
  spec.clear_initial_weights_skip();
}

// What a job that has run can be filled from, in order: its newest checkpoint first, the one that it started from last.
std::vector<std::string> CheckpointsToGoOnFrom(const Job& job) {
  const v1::JobStatus& status = job.status;
  std::vector<std::string> from;
  for (int i = status.checkpoints_size() - 1; i >= 0; --i) {
    if (!status.checkpoints(i).best()) from.push_back(status.checkpoints(i).path());
  }
  for (const v1::CheckpointInfo& info : status.checkpoints()) {
    if (info.best()) from.push_back(info.path());
  }
  if (!status.spec().resume_from().empty() && !status.restored_from().empty()) from.push_back(status.restored_from());
  return from;
}

void AddStepValidation(v1::StepValidation validation, v1::JobStatus& status) {
  auto& all = *status.mutable_validations();
  const auto after = std::find_if(all.begin(), all.end(), [&](const auto& v) { return v.step() > validation.step(); });
  const auto place = static_cast<int>(after - all.begin());
  *all.Add() = std::move(validation);
  std::rotate(all.begin() + place, all.end() - 1, all.end());
  if (all.size() > kStepValidationsKept) all.erase(all.begin());
}

}  // namespace cairn
