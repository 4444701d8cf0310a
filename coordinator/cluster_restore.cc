// Jobs whose partitions are filled from a checkpoint before they run: at their start (resume_from, initial_weights), or
// again when every copy of a partition is lost.
//
// A restore is an attempt of one worker in one generation. When it is done the generation is raised, and with it every
// frame of earlier attempts is fenced; the job runs when all partitions are ready in that one. Anything that raises the
// generation in between begins anew.
#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/text.h"
#include "common/model/callback_check.h"
#include "common/model/checkpoint_name.h"
#include "coordinator/cluster_core.h"

namespace cairn {
namespace {

// A worker that is lost is noticed sooner; this is for one that hangs on its disk.
constexpr absl::Duration kRestoreTimeout = absl::Minutes(10);
// After a failure; doubling. What a lost chief still had to say is here by then.
constexpr absl::Duration kRestoreAgainAfter = absl::Milliseconds(250);
constexpr size_t kPathMax = 4096 + 64;

}  // namespace

// What the user left open is as it was in the checkpoint: then the job goes on as if nothing had been.
void ClusterCore::TakeFacts(const v1::CheckpointFacts& facts, v1::JobSpec& spec) {
  if (spec.replicas() == 0 && facts.replicas() > 0 && facts.replicas() <= spec.batch_size()) {
    spec.set_replicas(facts.replicas());
  }
  if (spec.partition_bytes() == 0 && facts.partition_bytes() > 0) spec.set_partition_bytes(facts.partition_bytes());
  // backup_and_restore: there is one to go on from.
  const v1::BackupAndRestore* backup = BackupOf(spec);
  if (backup == nullptr || !absl::StartsWith(facts.path(), backup->backup_dir())) return;
  spec.set_resume_from(backup->backup_dir());
  spec.clear_initial_weights();
  spec.clear_initial_weights_skip();
}

// All partitions of a job that starts are ready to be filled.
void ClusterCore::TryRestore(Job& job) {
  if (!job.starting() || job.restore_from.empty() || job.awaiting_ready) return;
  if (!job.restore_worker.empty()) {
    if (now_ >= job.restore_until)
      RestoreFailed(job, absl::StrFormat("worker \"%s\" did not answer", job.restore_worker), true);
    return;
  }
  if (now_ < job.restore_not_before) return;
  RefreshRestoreFrom(job);
  const std::vector<ClusterNode*> workers = Askable(v1::WORKER, &job);
  if (workers.empty()) return;  // the reason says so
  const ClusterNode* worker = workers[static_cast<size_t>(job.restore_attempts) % workers.size()];
  const auto chief =
      std::find_if(workers.begin(), workers.end(), [&](auto* w) { return w->name == job.status.chief(); });
  if (job.restore_attempts == 0 && chief != workers.end()) worker = *chief;
  job.restore_worker = worker->name;
  job.restore_request = NextRequestId();
  job.restore_until = now_ + kRestoreTimeout;
  v1::CoordinatorMessage message;
  v1::Restore& restore = *message.mutable_restore();
  restore.set_request_id(job.restore_request);
  restore.set_job_id(job.id());
  restore.set_generation(job.status.generation());
  *restore.mutable_spec() = job.status.spec();
  FillRoutes(job, restore.mutable_routes());
  restore.set_path(job.restore_from.front());
  restore.mutable_fallbacks()->Assign(job.restore_from.begin() + 1, job.restore_from.end());
  restore.set_weights_only(!job.status.spec().initial_weights().empty() && job.status.checkpoints_size() == 0);
  restore.set_steps_per_epoch(job.status.steps_per_epoch());
  Send(*worker, std::move(message));
  UpdateReason(job);
}

// The chief that was may have written another one meanwhile, and removed those that are too many for it.
void ClusterCore::RefreshRestoreFrom(Job& job) {
  if (job.status.started_unix_ms() == 0) return;  // from what the user named
  std::vector<std::string> from;
  if (!job.restores_best) {
    from = CheckpointsToGoOnFrom(job);
  } else {
    from = BestPaths(job);
  }
  if (from.empty() || from == job.restore_from) return;
  job.restore_from = std::move(from);
  job.restore_attempts = 0;
}

void ClusterCore::OnRestored(const ClusterNode& node, const v1::RestoreReply& reply) {
  Job* job = Find(reply.job_id());
  if (job == nullptr || !job->starting() || job->awaiting_ready || job->restore_worker != node.name ||
      job->restore_request != reply.request_id()) {
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
    TellWarning(*job, "passed over: %s", CutUtf8(skipped, kErrorTextMax));
  }
  const int64_t step = *std::min_element(steps.begin(), steps.end());
  const v1::CheckpointInfo* best = job->restores_best && job->synchronous() ? BestCheckpoint(*job) : nullptr;
  if (best != nullptr && step != best->step()) {
    // A chief that was has put its own in the place of the best: what is in that place is another one.
    auto& known = *job->status.mutable_checkpoints();
    const int64_t wanted = best->step();
    known.erase(std::remove_if(known.begin(), known.end(), [&](const auto& k) { return k.path() == reply.path(); }),
                known.end());
    return RestoreFailed(*job,
                         absl::StrFormat("worker \"%s\": %s is of step %d, the best one was of %d", node.name,
                                         CutUtf8(reply.path(), kPathMax), step, wanted),
                         false);
  }
  Tell(*job, "restored from %s: goes on from step %d", CutUtf8(reply.path(), kPathMax), step);
  job->version.assign(job->version.size(), 0);  // they may have been further
  if (job->restores_best) {                     // all that it has done stays done
    job->restore_worker.clear();
    BeginCopiesAnew(*job);
    NewGeneration(*job);
    job->restored_in = job->status.generation();
    return;
  }
  job->status.set_restored_from(std::string(CutUtf8(reply.path(), kPathMax)));
  job->status.set_restored_step(step);
  // Epochs before have no figures here, unless they are this run's own.
  auto& epochs = *job->status.mutable_epochs();
  const int passed = static_cast<int>(step / std::max<int64_t>(1, job->status.steps_per_epoch()));
  if (epochs.size() > passed) epochs.DeleteSubrange(passed, epochs.size() - passed);
  while (epochs.size() < passed) {
    const int epoch = epochs.size();
    epochs.Add()->set_epoch(epoch);
  }
  OpenEpochs(*job, passed);
  job->progress.emplace(job->status, std::move(steps), std::vector<bool>{}, now_);
  job->checkpoint_wanted_since = job->files_until = absl::InfiniteFuture();  // of epochs that are done once more
  BeginCopiesAnew(*job);
  job->restore_worker.clear();
  // Workers that have run it before are elsewhere, perhaps done with it: they begin anew, and what they say of before
  // does not count.
  job->rollback_generation = job->status.generation();
  job->version.assign(job->version.size(), 0);  // what was left on a disk may have been ahead
  NewGeneration(*job);
  job->restored_in = job->status.generation();
}

// `silent`: it may still be at work, and is fenced.
void ClusterCore::RestoreFailed(Job& job, const std::string& why, bool silent) {
  TellWarning(job, "not restored: %s", why);
  job.restore_worker.clear();
  const size_t workers = std::max<size_t>(1, members_.Connected(v1::WORKER).size());
  const bool each_once = !silent && job.status.started_unix_ms() == 0;  // what a user named is there or not
  const size_t most = each_once ? std::min<size_t>(options_.attempts_max, workers) : options_.attempts_max;
  if (static_cast<size_t>(++job.restore_attempts) >= most) {
    if (job.restores_best && EndWithoutBest(job, why)) return;
    return EndJob(job, v1::FAILED, absl::StrCat("the job's partitions could not be restored: ", why));
  }
  if (!each_once) job.restore_not_before = now_ + kRestoreAgainAfter * (1 << std::min(job.restore_attempts, 6));
  NewGeneration(job);
}

// The worker that restores is gone: another one does it.
void ClusterCore::ReleaseRestores(const NodeName& worker) {
  for (auto& [id, job] : jobs_) {
    if (!job.starting() || job.restore_worker != worker) continue;
    job.restore_worker.clear();
    NewGeneration(job);
  }
}

// What a job that has run can be filled from, in turn: its newest checkpoint first, the one that it began with last.
std::vector<std::string> ClusterCore::CheckpointsToGoOnFrom(const Job& job) {
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

// The weights are lost: the job goes on from a checkpoint; one that had those of its best epoch gets these again.
// False: there is no checkpoint.
bool ClusterCore::RestoreInstead(Job& job, const std::string& why) {
  if (!job.active()) return false;
  std::vector<std::string> from = job.has_best ? BestPaths(job) : std::vector<std::string>();
  const bool best = !from.empty();
  if (!best) from = CheckpointsToGoOnFrom(job);
  if (from.empty()) return false;
  TellWarning(job, "%s; it goes on from checkpoint %s", why, from.front());
  job.restore_from = std::move(from);
  job.restores_best = best;
  job.has_best = false;
  job.restore_worker.clear();
  job.restore_attempts = 0;
  Transition(job, v1::STARTING);
  job.recovered = job.rolling_back = false;
  job.final_versions.clear();
  job.finalize_worker.clear();
  job.finalize_attempts = 0;
  job.finalize_at = now_;
  job.returned.clear();
  job.moves.clear();
  job.shifts.clear();
  StoreJob(job);
  const uint64_t before = job.status.generation();
  PlaceAnew(job);
  if (job.status.generation() == before) {  // nowhere else to go: all ps are drained, say
    job.version.assign(job.version.size(), 0);
    NewGeneration(job);
  }
  reschedule_ = true;
  return true;
}

}  // namespace cairn
