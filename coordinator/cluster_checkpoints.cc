// Checkpoints: what the chief wrote, which is the best, and jobs whose partitions are filled from one before they run:
// at their start (resume_from, initial_weights), or again when every copy of a partition is lost.
//
// A restore is an attempt of one worker in one generation. When it is done the generation is raised, and with it every
// frame of earlier attempts is fenced; the job runs when all partitions are ready in that one. Anything that raises the
// generation in between begins anew.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/text.h"
#include "common/model/callback_check.h"
#include "coordinator/cluster_core.h"

namespace cairn {
namespace {

// A worker that is lost is noticed sooner; this is for one that hangs on its disk.
constexpr absl::Duration kRestoreTimeout = absl::Minutes(10);
// After a failure; doubling. What a lost chief still had to say is here by then.
constexpr absl::Duration kRestoreAgainAfter = absl::Milliseconds(250);
constexpr size_t kPathMax = 4096 + 64;
// Beyond keep_max: those that wait to be compared, the best one, and what is being replaced.
constexpr int kCheckpointsExtra = 8;
// Between two commands to keep the same checkpoint as the best.
constexpr absl::Duration kMarkAgainAfter = absl::Seconds(5);
// Epochs whose checkpoint may still be named the best.
constexpr int kEpochsCompared = 4;

// NaN: there is no such figure of this epoch (yet).
double MonitoredFigure(const v1::JobStatus& status, const v1::EpochResult& epoch) {
  const std::string& monitor = status.spec().checkpoints().save_best();
  const bool validation = absl::StartsWith(monitor, "val_");
  const v1::MetricSums& sums = validation ? epoch.validation() : epoch.train();
  if (sums.examples() == 0 || (validation && sums.examples() < status.data().validation_examples())) return NAN;
  const absl::string_view name = absl::StripPrefix(monitor, "val_");
  if (name == "loss") return sums.loss() / static_cast<double>(sums.examples());
  for (int m = 0; m < status.spec().metrics_size(); ++m) {
    if (MetricName(status.spec(), m) == name) return MetricValue(status.spec(), m, sums);
  }
  return NAN;
}

}  // namespace

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

// ---- reports ----

void ClusterCore::OnCheckpoint(const ClusterNode& node, const v1::CheckpointReport& report) {
  Job* job = Find(report.job_id());
  if (job == nullptr || job->queued()) return;
  if (report.has_checkpoint() && node.name == job->status.chief()) job->late_chief_since = absl::InfiniteFuture();
  auto& known = *job->status.mutable_checkpoints();
  const auto remove = [&](auto gone) { known.erase(std::remove_if(known.begin(), known.end(), gone), known.end()); };
  for (const std::string& path : report.deleted()) {
    remove([&](const v1::CheckpointInfo& k) { return k.path() == path; });
  }
  if (!report.error().empty()) {
    const bool newer = std::any_of(known.begin(), known.end(), [&](const auto& k) {
      return report.has_checkpoint() && !k.best() && k.step() >= report.checkpoint().step();
    });
    if (newer) {  // of a chief before: another one has written it, or a later one
      if (node.name == job->status.chief()) job->checkpoint_heard = now_;  // or of its own, while other replicas were still behind
      return;
    }
    job->status.set_checkpoint_error(std::string(CutUtf8(report.error(), kErrorTextMax)));
    Warn("job %d: worker \"%s\" wrote no checkpoint: %s", job->id(), node.name, job->status.checkpoint_error());
    if (report.has_checkpoint()) {  // that of this step does not come any more
      NoteFailedCheckpoint(*job, report.checkpoint().step());
      job->checkpoint_heard = now_;
    }
  } else if (report.has_checkpoint()) {
    const v1::CheckpointInfo& info = report.checkpoint();
    if (info.path().empty() || info.path().size() > kPathMax || info.step() < 0 ||
        info.step() > job->status.total_steps()) {
      return Warn("job %d: worker \"%s\" reports a checkpoint that does not fit it; ignored", job->id(), node.name);
    }
    // A chief that was says again which was the best in its time; the copy is of a later one now.
    const bool outdated = info.best() && info.step() != job->best_asked_step &&
                          std::any_of(known.begin(), known.end(), [&](const auto& k) { return k.best() && k.step() != info.step(); });
    if (outdated) return;
    const bool again = std::any_of(known.begin(), known.end(), [&](const auto& k) {
      return k.path() == info.path() && k.written_unix_ms() == info.written_unix_ms();
    });
    const bool news = std::none_of(known.begin(), known.end(), [&](const auto& k) { return k.path() == info.path(); });
    remove([&](const v1::CheckpointInfo& k) { return k.path() == info.path() || (k.best() && info.best()); });
    *known.Add() = info;
    std::stable_sort(known.begin(), known.end(),
                     [](const auto& a, const auto& b) { return a.written_unix_ms() < b.written_unix_ms(); });
    const int most = job->status.spec().checkpoints().keep_max() + kCheckpointsExtra;
    if (known.size() > most) known.DeleteSubrange(0, known.size() - most);
    job->status.clear_checkpoint_error();
    if (news) Log("job %d: checkpoint %s", job->id(), info.path());
    if (!again && !info.best()) job->checkpoint_heard = now_;
    if (news && !info.best() && job->active()) SaveAtStep(*job, info.step());
  }
  StoreJob(*job);
  ConsiderBest(*job);
  if (job->active()) SendSaves(*job);
  if (job->running()) Advance(*job);  // the end of an epoch may have waited for it
}

// Of the epoch that is to be decided. A chief that was may say only now of an earlier one what has long been decided without it.
void ClusterCore::NoteFailedCheckpoint(Job& job, int64_t step) {
  const int64_t end = job.status.epochs_open() * job.status.steps_per_epoch(), begin = end - job.status.steps_per_epoch();
  if (step > begin && step <= end) job.checkpoint_failed_step = std::max(job.checkpoint_failed_step, step);
}

// Has the chief keep the checkpoint of the best epoch, where that is another one than before.
void ClusterCore::ConsiderBest(Job& job) {
  const v1::Checkpoints& rule = job.status.spec().checkpoints();
  if (rule.save_best().empty()) return;
  if (RestoresBest(job.status.spec()) != nullptr) return MarkBestEpoch(job);
  const auto better = [&](double a, double b) { return rule.mode() == v1::Checkpoints::MAX ? a > b : a < b; };
  double best = NAN;
  for (const v1::CheckpointInfo& info : job.status.checkpoints()) {
    if (info.best()) best = info.monitored();
  }
  int64_t step = -1;
  const int epochs = job.status.epochs_size();
  for (int i = std::max(0, epochs - kEpochsCompared); i < epochs; ++i) {
    const v1::CheckpointInfo* info = CheckpointOf(job, i);
    const double figure = MonitoredFigure(job.status, job.status.epochs(i));
    if (info == nullptr || std::isnan(figure) || (!std::isnan(best) && !better(figure, best))) continue;
    best = figure;
    step = info->step();
  }
  if (step >= 0) SendMarkBest(job, step, best);
}

// The chief may have been given the job before another one wrote the checkpoint: it is told of it first. Asked again and again until it
// reports the best one: its disk may have been full, and what is not kept is removed as the oldest later.
void ClusterCore::SendMarkBest(Job& job, int64_t step, double monitored) {
  const ClusterNode* chief = members_.Find(job.status.chief());
  if (chief == nullptr || !chief->connected() || !job.running() || job.awaiting_ready) return;
  const auto given = chief->running.find(job.id());
  if (given == chief->running.end() || !given->second.chief.value_or(false) || given->second.generation != job.status.generation() ||
      given->second.replicas != job.ReplicasOf(chief->name)) {
    return;  // SendAssignments comes back to it
  }
  if (job.best_asked.worker == chief->name && job.best_asked_step == step && now_ < job.best_asked.until) return;
  job.best_asked = {chief->name, now_ + kMarkAgainAfter, absl::InfinitePast()};
  job.best_asked_step = step;
  Send(*chief, MakeAssignReplicas(job, chief->name));
  v1::CoordinatorMessage message;
  v1::MarkBest& mark = *message.mutable_mark_best();
  mark.set_job_id(job.id());
  mark.set_step(step);
  mark.set_monitored(monitored);
  Send(*chief, std::move(message));
}

// ---- restore ----

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
  const auto chief = std::find_if(workers.begin(), workers.end(), [&](auto* w) { return w->name == job.status.chief(); });
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
    Warn("job %d: passed over: %s", job->id(), CutUtf8(skipped, kErrorTextMax));
  }
  const int64_t step = *std::min_element(steps.begin(), steps.end());
  const v1::CheckpointInfo* best = job->restores_best && job->synchronous() ? BestCheckpoint(*job) : nullptr;
  if (best != nullptr && step != best->step()) {
    // A chief that was has put its own in the place of the best: what is in that place is another one.
    auto& known = *job->status.mutable_checkpoints();
    const int64_t wanted = best->step();
    known.erase(std::remove_if(known.begin(), known.end(), [&](const auto& k) { return k.path() == reply.path(); }), known.end());
    return RestoreFailed(*job, absl::StrFormat("worker \"%s\": %s is of step %d, the best one was of %d", node.name,
                                               CutUtf8(reply.path(), kPathMax), step, wanted), false);
  }
  Log("job %d: restored from %s: goes on from step %d", job->id(), CutUtf8(reply.path(), kPathMax), step);
  job->version.assign(job->version.size(), 0);  // they may have been further
  if (job->restores_best) {  // all that it has done stays done
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
  // Workers that have run it before are elsewhere, perhaps done with it: they begin anew, and what they say of before does
  // not count.
  job->rollback_generation = job->status.generation();
  job->version.assign(job->version.size(), 0);  // what was left on a disk may have been ahead
  NewGeneration(*job);
  job->restored_in = job->status.generation();
}

// `silent`: it may still be at work, and is fenced.
void ClusterCore::RestoreFailed(Job& job, const std::string& why, bool silent) {
  Warn("job %d: not restored: %s", job.id(), why);
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

// The weights are lost: the job goes on from a checkpoint; one that had those of its best epoch gets these again. False: there is no
// checkpoint.
bool ClusterCore::RestoreInstead(Job& job, const std::string& why) {
  if (!job.active()) return false;
  std::vector<std::string> from = job.has_best ? BestPaths(job) : std::vector<std::string>();
  const bool best = !from.empty();
  if (!best) from = CheckpointsToGoOnFrom(job);
  if (from.empty()) return false;
  Warn("job %d: %s; it goes on from checkpoint %s", job.id(), why, from.front());
  job.restore_from = std::move(from);
  job.restores_best = best;
  job.has_best = false;
  job.restore_worker.clear();
  job.restore_attempts = 0;
  job.status.set_state(v1::STARTING);
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
