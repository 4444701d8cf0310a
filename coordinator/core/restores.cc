#include "coordinator/core/restores.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/limits.h"
#include "common/base/text.h"
#include "common/model/callback_check.h"
#include "common/model/checkpoint_name.h"
#include "common/model/epoch_rates.h"
#include "common/model/strategy_check.h"
#include "coordinator/core/callbacks.h"
#include "coordinator/core/job_facts.h"
#include "coordinator/core/limits.h"

namespace cairn {
namespace {

// Whether its directory may have newer checkpoints of this job than are known: a chief that is cut off from the
// coordinator goes on, writes some and removes the known ones. A worker accepts only the job's own there.
bool MayHaveUnknownCheckpoints(const Job& job) {
  const v1::JobSpec& spec = job.status.spec();
  return job.status.started_unix_ms() != 0 && !job.best.restoring && !spec.checkpoints().dir().empty() &&
         spec.checkpoints().dir() != spec.resume_from();
}

// A lost worker is noticed sooner; the limit is for one that hangs on its disk.
constexpr absl::Duration kRestoreTimeout = absl::Minutes(10);
// The delay after a failure; it doubles. Late messages of a lost chief arrive within it.
constexpr absl::Duration kRestoreAgainAfter = absl::Milliseconds(250);

// With initial_weights: weights alone, as long as it has written no checkpoint of its own.
bool BeginsWithWeights(const Job& job) {
  return !job.status.spec().initial_weights().empty() && job.status.checkpoints_size() == 0;
}

}  // namespace

// early_stopping with restore_best_weights: fills the partitions from the best epoch's checkpoint. Returns false if the
// present weights are the final ones.
bool Restores::RestoreBest(Job& job) {
  const int best = BestEpoch(job.status.spec(), job.decisions.callbacks);
  if (best < 0 || best + 1 >= job.progress->epochs() || job.best.given_up) return false;
  const v1::CheckpointInfo* info = BestCheckpoint(job);
  if (info == nullptr) {
    NoteShortfall(job, best, "early_stopping", "its weights were to be restored, but there is no checkpoint of them");
    return false;
  }
  AddNote(job, best, "early_stopping", "the best epoch; its weights are restored");
  jobs_.Tell(job, "ends with the weights of epoch %d, from %s", best + 1, info->path());
  job.restoring.from = BestPaths(job);
  job.best.restoring = true;
  job.restoring.AskAnew();
  job.restoring.attempts = 0;
  jobs_.Transition(job, v1::STARTING);
  job.partitions.hosting.SetVersions(0);
  hosting_.NewGeneration(job);
  return true;
}

// The best epoch's weights cannot be read. The job ends with those of its last epoch if the partitions still have them;
// otherwise it continues from another checkpoint. Returns false if there is none.
bool Restores::EndWithoutBest(Job& job, const std::string& why) {
  const std::string path = job.restoring.from.front();
  const uint64_t updates_of_each = static_cast<uint64_t>(job.status.total_steps());
  const int32_t units = job.synchronous() ? 1 : job.status.spec().replicas() / LocalSyncOf(job.status.spec());
  const uint64_t last = updates_of_each * static_cast<uint64_t>(units);
  const bool there = std::all_of(job.partitions.hosting.held.begin(), job.partitions.hosting.held.end(),
                                 [&](const v1::HeldPartition& at) { return at.version() == last; });
  std::vector<std::string> others = CheckpointsToGoOnFrom(job);
  std::erase(others, path);
  if (!there && others.empty()) return false;
  NoteShortfall(
      job, std::max(0, BestEpoch(job.status.spec(), job.decisions.callbacks)), "early_stopping",
      absl::StrCat("its weights are not restored from ", path, ", the job ends with those of its last epoch: ", why));
  step_.Warn(OfJob(job.id()), "%s", job.status.notes().rbegin()->text());
  job.best.restoring = false;
  job.best.given_up = true;
  job.restoring.attempts = 0;
  job.restoring.from.clear();
  if (there) {
    jobs_.Transition(job, v1::FINALIZING);
    job.partitions.hosting.SetVersions(last);  // an incomplete attempt is detected by these
  } else {
    job.restoring.from = std::move(others);
  }
  hosting_.NewGeneration(job);
  return true;
}

// All partitions of a starting job are ready to be filled.
void Restores::TryRestore(Job& job) {
  if (!job.starting() || job.restoring.from.empty() || job.partitions.hosting.awaiting_ready) return;
  // A ps that is away is waited for (Job::keeps_updates). Its return raises the generation: the restore begins anew.
  if (!candidates_.MissingPs(job).empty()) return job.restoring.AskAnew();
  if (!job.restoring.worker.empty()) {
    if (step_.now() >= job.restoring.until)
      RestoreFailed(job, absl::StrFormat("worker \"%s\" did not answer", job.restoring.worker), true);
    return;
  }
  if (step_.now() < job.restoring.not_before) return;
  RefreshRestoreFrom(job);
  const std::vector<ClusterNode*> workers = candidates_.Askable(v1::WORKER, &job);
  if (workers.empty()) return;  // the reason says so
  const ClusterNode* worker = workers[static_cast<size_t>(job.restoring.attempts) % workers.size()];
  const auto chief =
      std::find_if(workers.begin(), workers.end(), [&](auto* w) { return w->name == job.status.chief(); });
  if (job.restoring.attempts == 0 && chief != workers.end()) worker = *chief;
  job.restoring.worker = worker->name;
  job.restoring.request = step_.NextRequestId();
  job.restoring.until = step_.now() + kRestoreTimeout;
  v1::CoordinatorMessage message;
  v1::Restore& restore = *message.mutable_restore();
  restore.set_request_id(job.restoring.request);
  restore.set_job_id(job.id());
  restore.set_generation(job.status.generation());
  *restore.mutable_spec() = job.status.spec();
  FillRoutes(job, restore.mutable_routes());
  restore.set_path(job.restoring.from.front());
  restore.mutable_fallbacks()->Assign(job.restoring.from.begin() + 1, job.restoring.from.end());
  if (MayHaveUnknownCheckpoints(job)) restore.add_fallbacks(job.status.spec().checkpoints().dir());
  restore.set_weights_only(BeginsWithWeights(job));
  restore.set_steps_per_epoch(job.status.steps_per_epoch());
  step_.Send(*worker, std::move(message));
  step_.Raise(ReasonDue{job.id()});
}

// The former chief may have written another checkpoint meanwhile, and removed the oldest ones.
void Restores::RefreshRestoreFrom(Job& job) {
  if (job.status.started_unix_ms() == 0) return;  // uses the checkpoint that the user named
  std::vector<std::string> from;
  if (!job.best.restoring) {
    from = CheckpointsToGoOnFrom(job);
  } else {
    from = BestPaths(job);
  }
  if (from.empty() || from == job.restoring.from) return;
  job.restoring.from = std::move(from);
  job.restoring.attempts = 0;
}

void Restores::OnRestored(const ClusterNode& node, const v1::RestoreReply& reply) {
  Job* job = jobs_.Find(reply.job_id());
  if (job == nullptr || !job->starting() || job->partitions.hosting.awaiting_ready ||
      job->restoring.worker != node.name || job->restoring.request != reply.request_id()) {
    return;  // superseded
  }
  if (!reply.error().empty()) {
    return RestoreFailed(*job, absl::StrFormat("worker \"%s\": %s", node.name, CutUtf8(reply.error(), kErrorTextMax)),
                         false);
  }
  std::vector<int64_t> steps(reply.replica_step().begin(), reply.replica_step().end());
  const int64_t total = job->status.total_steps();
  if (steps.empty()) steps.assign(static_cast<size_t>(job->status.spec().replicas()), reply.step());
  const bool fits = steps.size() == static_cast<size_t>(job->status.spec().replicas()) &&
                    std::all_of(steps.begin(), steps.end(), [&](int64_t s) { return s >= 0 && s <= total; });
  if (!fits)
    return RestoreFailed(*job, absl::StrFormat("worker \"%s\": steps that the job does not have", node.name), false);
  for (const std::string& skipped : reply.skipped()) {
    jobs_.TellWarning(*job, "skipped: %s", CutUtf8(skipped, kErrorTextMax));
  }
  const std::string path(CutUtf8(reply.path(), kCheckpointPathBytesMax));
  const int64_t step = *std::min_element(steps.begin(), steps.end());
  if (const std::optional<int64_t> wanted = DropReplacedBest(*job, reply.path(), step)) {
    return RestoreFailed(
        *job,
        absl::StrFormat("worker \"%s\": %s is of step %d, the best one was of %d", node.name, path, step, *wanted),
        false);
  }
  if (BeginsWithWeights(*job) && step == 0) {
    jobs_.Tell(*job, "begins with the weights of %s", path);
  } else {
    jobs_.Tell(*job, "restored from %s: continues from step %d", path, step);
  }
  job->partitions.hosting.SetVersions(0);                            // the partitions may have had later versions
  if (!job->best.restoring) GoOnFrom(*job, path, std::move(steps));  // otherwise all completed steps stay completed
  if (const std::string nothing = NothingToDoText(*job); !job->best.restoring && !nothing.empty())
    jobs_.TellText(*job, /*warning=*/true, nothing);
  job->restoring.AskAnew();
  hosting_.BeginCopiesAnew(*job);
  hosting_.NewGeneration(*job);
  job->restoring.filled_in = job->status.generation();
}

// A former chief may have overwritten the best checkpoint with its own, so its content is a different one. Returns the
// step of the best one; nullopt: the job is being filled from it, or none is wanted.
std::optional<int64_t> Restores::DropReplacedBest(Job& job, const std::string& path, int64_t step) {
  const v1::CheckpointInfo* best = job.best.restoring && job.synchronous() ? BestCheckpoint(job) : nullptr;
  if (best == nullptr || step == best->step()) return std::nullopt;
  const int64_t wanted = best->step();
  auto& known = *job.status.mutable_checkpoints();
  known.erase(std::remove_if(known.begin(), known.end(), [&](const auto& k) { return k.path() == path; }), known.end());
  return wanted;
}

// The job resumes at the checkpoint. steps: the next step of each replica.
void Restores::GoOnFrom(Job& job, const std::string& path, std::vector<int64_t> steps) {
  const int64_t step = *std::min_element(steps.begin(), steps.end());
  job.status.set_restored_from(path);
  job.status.set_restored_step(step);
  // Earlier epochs have figures only if they are from this run.
  auto& epochs = *job.status.mutable_epochs();
  const int passed = static_cast<int>(step / std::max<int64_t>(1, job.status.steps_per_epoch()));
  if (epochs.size() > passed) epochs.DeleteSubrange(passed, epochs.size() - passed);
  while (epochs.size() < passed) {
    const int epoch = epochs.size();
    epochs.Add()->set_epoch(epoch);
  }
  OpenEpochs(job, passed);
  job.progress.emplace(job.status, std::move(steps), std::vector<bool>{}, step_.now());
  job.decisions.WaitAnew();
  job.outputs.StartOver();
  // Workers that have run the job before may be elsewhere in it, perhaps finished. They start over; reports from before
  // do not count.
  job.partitions.rollback.RefuseBefore(job.status.generation());
}

// `silent`: the worker may still be working, and is fenced.
void Restores::RestoreFailed(Job& job, const std::string& why, bool silent) {
  jobs_.TellWarning(job, "not restored: %s", why);
  job.restoring.AskAnew();
  const size_t workers = std::max<size_t>(1, nodes_.Connected(v1::WORKER).size());
  // a checkpoint that the user named either exists or does not
  const bool each_once = !silent && job.status.started_unix_ms() == 0;
  const size_t most = each_once ? std::min<size_t>(options_.attempts_max, workers) : options_.attempts_max;
  if (static_cast<size_t>(++job.restoring.attempts) >= most) {
    if (job.best.restoring && EndWithoutBest(job, why)) return;
    return endings_.End(job, v1::FAILED, absl::StrCat("the job's partitions could not be restored: ", why));
  }
  if (!each_once)
    job.restoring.not_before = step_.now() + kRestoreAgainAfter * (1 << std::min(job.restoring.attempts, 6));
  hosting_.NewGeneration(job);
}

// The restoring worker is gone: another one takes over.
void Restores::ReleaseWorker(const NodeName& worker) {
  for (auto& [id, job] : jobs_.all()) {
    if (!job.starting() || job.restoring.worker != worker) continue;
    job.restoring.AskAnew();
    hosting_.NewGeneration(job);
  }
}

// The weights are lost: the job continues from a checkpoint. A job that was restored to its best epoch gets those
// weights again, also one that is being restored to it. Returns false if there is no checkpoint.
bool Restores::RestoreInstead(Job& job, const std::string& why) {
  if (!job.active()) return false;
  std::vector<std::string> from = job.best.restored || job.best.restoring ? BestPaths(job) : std::vector<std::string>();
  const bool best = !from.empty();
  if (!best) from = CheckpointsToGoOnFrom(job);
  if (from.empty()) return false;
  jobs_.TellWarning(job, "%s; it continues from checkpoint %s", why, from.front());
  job.restoring.from = std::move(from);
  job.best.restoring = best;
  job.best.restored = false;
  job.restoring.AskAnew();
  job.restoring.attempts = 0;
  jobs_.Transition(job, v1::STARTING);
  job.partitions.rollback.Forget();
  job.end.BeginAnew(step_.now());
  job.partitions.copies.BeginAnew();
  jobs_.Save(job);
  const uint64_t before = job.status.generation();
  hosting_.PlaceAnew(job);
  if (job.status.generation() == before) {  // no ps to move to, for example because all are drained
    job.partitions.hosting.SetVersions(0);
    hosting_.NewGeneration(job);
  }
  step_.Raise(SlotsChanged{});
  return true;
}

}  // namespace cairn
