#include "coordinator/core/job_runs.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/limits.h"
#include "common/base/text.h"
#include "common/model/job_outputs.h"
#include "common/model/loss_scale.h"
#include "coordinator/core/job_facts.h"
#include "coordinator/core/limits.h"
#include "coordinator/core/partition_copies.h"

namespace cairn {
namespace {

constexpr absl::Duration kFinalizeAgainAfter = absl::Seconds(1);

std::string FiguresText(const v1::JobSpec& spec, const v1::MetricSums& sums) {
  if (sums.examples() == 0) return "none";
  std::string text = absl::StrFormat("loss %.4f", sums.loss() / static_cast<double>(sums.examples()));
  for (int i = 0; i < std::min(FigureCount(spec), sums.metrics_size()); ++i) {
    absl::StrAppendFormat(&text, ", %s %.4f", MetricName(spec, i), MetricValue(spec, i, sums));
  }
  return text;
}

// The chief reports its replicas as finished once it owes no checkpoint. A worker that had one of them before does not
// know about that, and reports it as finished as soon as it has heard of the last step. Of its report only the steps
// count.
bool IsForChiefToSay(const Job& job, const NodeName& worker, const v1::ReplicaReport& report) {
  const int32_t r = report.replica();
  return report.finished() && job.status.spec().has_checkpoints() && worker != job.status.chief() && r >= 0 &&
         r < job.status.replicas_size() && job.status.replicas(r).worker() == job.status.chief();
}

}  // namespace

JobRuns::JobRuns(Ground& ground, const Parts& parts)
    : Component(ground),
      endings_(parts.endings),
      restores_(parts.restores),
      rollback_(parts.rollback),
      copies_(parts.copies),
      assignments_(parts.assignments),
      files_(parts.files),
      checkpoints_(parts.checkpoints),
      epochs_(parts.epochs) {}

void JobRuns::AllReady(Job& job) {
  if (!job.active() || !job.partitions.hosting.awaiting_ready) return;
  if (!std::all_of(job.partitions.hosting.ready.begin(), job.partitions.hosting.ready.end(), [](bool r) { return r; }))
    return;
  if (job.partitions.rollback.recovered) {
    if (job.synchronous() ? rollback_.FallBack(job) : rollback_.GoOnFromWhatIsLeft(job)) return;
    job.partitions.rollback.EndCheck();
    jobs_.Save(job);
  } else if (job.partitions.rollback.End()) {
    jobs_.Save(job);
  }
  job.partitions.hosting.EndWait();
  step_.Raise(CopiesChanged{job.id()});
  if (copies_.EndFormers(job)) {  // before the workers push in this generation
    jobs_.Save(job);
    hosting_.HostAll(job, false);
  }
  if (job.progress) job.progress->Restart(step_.now());
  if (job.starting() && !job.restoring.from.empty() && job.restoring.filled_in != job.status.generation()) {
    job.restoring.AskAnew();
    restores_.TryRestore(job);
    return step_.Raise(ReasonDue{job.id()});
  }
  if (job.starting() && job.best.End()) {
    job.restoring.End();
    return BeginFinalizing(job);
  }
  if (job.starting()) {
    job.restoring.End();
    jobs_.Transition(job, v1::RUNNING);
    if (job.status.started_unix_ms() == 0) job.status.set_started_unix_ms(absl::ToUnixMillis(step_.now()));
    // Pass a copy: emplace destroys the old object, which its arguments must not refer to.
    job.progress.emplace(job.status, std::vector<int64_t>(job.progress->replicas().next()), std::vector<bool>{},
                         step_.now());
    jobs_.Save(job);
    step_.Log(OfJob(job.id()), "running: steps %d to %d", job.progress->step(), job.status.total_steps());
  }
  step_.Raise(ReasonDue{job.id()});
  assignments_.Send(job);
  if (job.finalizing()) TryFinalize(job);
}

// ---- run ----

void JobRuns::Advance(Job& job) {
  const int closed = job.progress->CloseEpochs(step_.now(), options_.report_grace, job.status);
  for (int i = job.status.epochs_size() - closed; i < job.status.epochs_size(); ++i) {
    v1::EpochResult& epoch = *job.status.mutable_epochs(i);
    const v1::JobSpec& spec = job.status.spec();
    epoch.set_learning_rate(RateAt(job, (i + 1) * job.status.steps_per_epoch() - 1));
    const std::string took = epoch.seconds() > 0 ? absl::StrFormat(" in %.1f s", epoch.seconds()) : "";  // if known
    step_.Log(OfJob(job.id()), "epoch %d/%d%s: %s; validation: %s", i + 1, spec.epochs(), took,
              FiguresText(spec, epoch.train()), FiguresText(spec, epoch.validation()));
  }
  if (closed > 0) jobs_.Save(job);
  if (closed > 0 || job.progress->WantsFigures(step_.now(), job.status)) epochs_.SendFiguresStored(job);
  checkpoints_.ConsiderBest(job);
  files_.NoteStepFigures(job);
  endings_.NoteFinite(job);
  epochs_.DecideEpochs(job);
  if (closed > 0 && job.running()) files_.SendSummaries(job);
  if (!job.running() || !job.progress->Done(step_.now(), job.status)) return;
  job.progress->CloseAll(step_.now(), job.status);
  if ((Undecided(job) && job.status.epochs_open() <= job.status.epochs_size()) || epochs_.LastCheckpointMayCome(job) ||
      !files_.AllWritten(job) || restores_.RestoreBest(job)) {
    return;
  }
  step_.Log(OfJob(job.id()), "all steps are done; its last values are written to disk, then the digest is taken");
  BeginFinalizing(job);
}

// ---- finalize ----

void JobRuns::BeginFinalizing(Job& job) {
  jobs_.Transition(job, v1::FINALIZING);
  step_.Raise(SlotsChanged{});  // its slots are free
  hosting_.NewGeneration(job);
}

// Recorded once for each attempt to end: if a partition returns at another version, its weights are not the final ones
// and the digest is rejected.
void JobRuns::NoteFinalVersions(Job& job) {
  if (!job.end.versions.empty()) return;
  std::vector<uint64_t> versions;
  for (const v1::HeldPartition& at : job.partitions.hosting.held) versions.push_back(at.version());
  job.end.versions = std::move(versions);
  jobs_.Save(job);
}

void JobRuns::TryFinalize(Job& job) {
  if (!job.end.worker.empty()) {
    if (step_.now() < job.end.at) return;
    return FinalizeFailed(job, absl::StrFormat("worker \"%s\" did not answer", job.end.worker));
  }
  if (job.partitions.hosting.awaiting_ready || !candidates_.MissingPs(job).empty()) {
    job.end.attempts = 0;  // the attempts failed because of the ps, which is waited for
    return;
  }
  if (std::any_of(job.partitions.hosting.held.begin(), job.partitions.hosting.held.end(),
                  [](const auto& at) { return at.in_memory(); }))
    return;  // the reason says so
  NoteFinalVersions(job);
  if (step_.now() < job.end.at) return;
  const std::vector<ClusterNode*> workers = candidates_.Askable(v1::WORKER, &job);
  if (workers.empty()) return;
  const ClusterNode* worker = workers[job.end.attempts % workers.size()];
  const auto chief =
      std::find_if(workers.begin(), workers.end(), [&](auto* w) { return w->name == job.status.chief(); });
  if (job.end.attempts == 0 && chief != workers.end()) worker = *chief;
  job.end.worker = worker->name;
  job.end.at = step_.now() + options_.finalize_timeout;
  step_.Send(*worker, MakeFinalize(job));
}

void JobRuns::OnFinalized(const ClusterNode& node, const v1::FinalizeReply& reply) {
  Job* job = jobs_.Find(reply.job_id());
  if (job == nullptr || !job->finalizing()) return;
  if (reply.generation() != 0 && reply.generation() != job->status.generation()) return;  // superseded
  if (job->partitions.hosting.awaiting_ready || job->end.versions.empty()) return;        // superseded too
  if (!reply.error().empty() || reply.digest().empty()) {
    if (job->end.worker != node.name) return;  // an answer of an attempt that was abandoned
    return FinalizeFailed(*job, absl::StrFormat("worker \"%s\": %s", node.name, CutUtf8(reply.error(), kErrorTextMax)));
  }
  job->status.set_digest(std::string(CutUtf8(reply.digest(), 64)));
  endings_.EndComplete(*job, std::string(CutUtf8(reply.not_finite(), kVariableNameTextMax)));
}

void JobRuns::FinalizeFailed(Job& job, const std::string& why) {
  jobs_.TellWarning(job, "the digest was not taken: %s", why);
  job.end.worker.clear();
  // Doubling delays: together the attempts take longer than it takes to detect a lost ps.
  job.end.at = step_.now() + kFinalizeAgainAfter * (1 << std::min(job.end.attempts, 6));
  if (++job.end.attempts < options_.finalize_attempts_max) return;
  endings_.End(job, v1::FAILED,
               absl::StrCat("all steps are done, but the digest of the weights could not be taken: ", why));
}

// ---- reports from workers ----

void JobRuns::OnProgress(const ClusterNode& node, const google::protobuf::RepeatedPtrField<v1::JobProgress>& reported) {
  for (const v1::JobProgress& progress : reported) {
    Job* job = jobs_.Find(progress.job_id());
    if (job == nullptr || !job->running() || !job->progress) continue;
    // From before a rollback, or before the job was filled from a checkpoint.
    if (progress.generation() < std::max(job->partitions.rollback.generation, job->restoring.filled_in)) continue;
    if (jobs_.usage().ReplicasOn(node.name, job->id()) > 0)
      job->workers.stragglers.watch.Heard(node.name, progress.replica_ms(), step_.now());
    if (node.name == job->status.chief() && job->status.spec().compute_dtype() == v1::FLOAT16 &&
        IsLossScale(progress.loss_scale()))
      job->status.set_loss_scale(progress.loss_scale());
    const auto known = node.work.running.find(progress.job_id());
    if (known != node.work.running.end() && known->second.Covers(progress.assignment()))
      job->progress->Reached(known->second.replicas, progress.step(), step_.now());
    Advance(*job);
    jobs_.Changed(*job);
  }
}

void JobRuns::OnReplicaReport(const ClusterNode& node, const v1::ReplicaReport& report) {
  Job* job = jobs_.Find(report.job_id());
  if (job == nullptr || !job->running() || !job->progress) return;  // it ended meanwhile
  if (report.generation() < std::max(job->partitions.rollback.generation, job->restoring.filled_in))
    return;  // from before that
  v1::ReplicaReport counts = report;
  if (IsForChiefToSay(*job, node.name, report)) {
    counts.clear_finished();
    counts.set_last_step(job->progress->replicas().total_steps() - 1);
  }
  absl::StatusOr<bool> counted = job->progress->Count(counts, job->status, step_.now());
  if (!counted.ok()) {
    return step_.Warn(OfJob(job->id()), "worker \"%s\" sent a report that does not fit it (%s); ignored", node.name,
                      counted.status().message());
  }
  if (!*counted) return;
  if (counts.finished()) {
    if (node.name == job->status.chief()) job->outputs.checkpoints.ChiefToldEnd();
    jobs_.Save(*job);
  }
  Advance(*job);
  jobs_.Changed(*job);
}

void JobRuns::ReleaseWorker(const NodeName& worker) {
  for (auto& [id, job] : jobs_.all()) {
    if (!job.finalizing() || job.end.worker != worker) continue;
    job.end.AskAnew(step_.now());
    TryFinalize(job);
  }
}

}  // namespace cairn
