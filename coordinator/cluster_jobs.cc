// The life of a job: QUEUED -> STARTING -> RUNNING -> FINALIZING -> SUCCEEDED or ENDED_WITH_ERRORS, and out of each to
// FAILED or CANCELLED (cluster_ended.cc).
#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/limits.h"
#include "common/base/text.h"
#include "common/model/step_plan.h"
#include "coordinator/cluster_core.h"
#include "coordinator/copies.h"
#include "coordinator/job_state.h"

namespace cairn {
namespace {

constexpr size_t kNameTextMax = 200;  // of a variable
constexpr absl::Duration kFinalizeAgainAfter = absl::Seconds(1);
// Of a command, for what surrounds it on the way.
constexpr int64_t kCommandBytesMax = kControlMessageBytesMax - (64 << 10);

std::string FiguresText(const v1::JobSpec& spec, const v1::MetricSums& sums) {
  if (sums.examples() == 0) return "none";
  std::string text = absl::StrFormat("loss %.4f", sums.loss() / static_cast<double>(sums.examples()));
  for (int i = 0; i < std::min(spec.metrics_size(), sums.metrics_size()); ++i) {
    absl::StrAppendFormat(&text, ", %s %.4f", MetricName(spec, i), MetricValue(spec, i, sums));
  }
  return text;
}

}  // namespace

void ClusterCore::Transition(Job& job, v1::JobState to) {
  if (MayFollow(job.state(), to)) return job.status.set_state(to);
  Warn("job %d: a change of its state from %s to %s is refused", job.id(), v1::JobState_Name(job.state()),
       v1::JobState_Name(to));
}

// ---- start ----

void ClusterCore::StartJob(Job& job, std::vector<WorkerCapacity> workers) {
  ResolveDefaults(job);
  std::stable_sort(workers.begin(), workers.end(), [](const auto& a, const auto& b) { return a.slots > b.slots; });
  const size_t most = job.mirrored() ? 1 : job.status.spec().max_workers();
  if (most > 0 && workers.size() > most) workers.resize(most);
  if (absl::Status status = LayOut(job); !status.ok()) return EndJob(job, v1::FAILED, std::string(status.message()));
  Transition(job, v1::STARTING);
  job.checked.reset();
  OpenEpochs(job, 0);
  job.progress.emplace(job.status, std::vector<int64_t>{}, std::vector<bool>{}, now_);
  const v1::JobSpec& spec = job.status.spec();
  if (!spec.resume_from().empty() || !spec.initial_weights().empty()) {
    job.restore_from = {spec.resume_from().empty() ? spec.initial_weights() : spec.resume_from()};
  }
  const double waited_s = absl::ToDoubleSeconds(now_ - absl::FromUnixMillis(job.status.submitted_unix_ms()));
  Tell(job, "starts, %.1f s after it was submitted: %d replicas, %d partitions", std::max(0.0, waited_s),
       job.status.replicas_size(), job.status.partitions_size());
  // Partitions first: a crash in between leaves replicas without a worker, which the next Schedule mends.
  PlaceAnew(job);
  SetOwners(job, PlaceUnits(job, std::move(workers)));
}

// Steps, partitions and replicas, none of them placed.
absl::Status ClusterCore::LayOut(Job& job) {
  const v1::JobSpec& spec = job.status.spec();
  const StepPlan plan = StepPlan::Of(spec, static_cast<int64_t>(job.status.data().train_examples()));
  job.status.set_steps_per_epoch(plan.steps_per_epoch);
  job.status.set_total_steps(plan.total_steps);
  const int64_t space = job.checked->graph.space_size();
  const int64_t partitions = (space * 4 + spec.partition_bytes() - 1) / spec.partition_bytes();
  const std::string advice = absl::StrFormat(
      "partition_bytes: %d makes %d partitions, too many to be named in one message; use a larger value",
      spec.partition_bytes(), partitions);
  if (partitions > kPartitionsMax) return absl::InvalidArgumentError(advice);
  job.status.clear_partitions();
  for (const v1::PartitionRange& range : CutPartitions(space, spec.partition_bytes())) {
    v1::PartitionPlacement& p = *job.status.add_partitions();
    p.set_partition(range.partition());
    p.set_begin(range.begin());
    p.set_end(range.end());
  }
  job.status.clear_replicas();
  for (int32_t r = 0; r < spec.replicas(); ++r) job.status.add_replicas()->set_replica(r);
  size_t longest = 0;  // of a route's name and address
  for (const ClusterNode* ps : members_.Connected(v1::PS))
    longest = std::max(longest, ps->name.size() + ps->address.size());
  const int64_t bytes =
      static_cast<int64_t>(MakeAssignReplicas(job, "").ByteSizeLong() + job.status.partitions_size() * (longest + 8));
  return bytes <= kCommandBytesMax ? absl::OkStatus() : absl::InvalidArgumentError(advice);
}

// Partitions to the ps that are there. Only for a job that has not run: nothing is lost.
void ClusterCore::PlaceAnew(Job& job) {
  std::vector<PsLoad> loads = PsLoads(job, false);
  if (loads.empty()) return;  // the reason says so; the next ps that joins brings us here again
  std::vector<v1::PartitionRange> ranges;
  for (v1::PartitionPlacement& p : *job.status.mutable_partitions()) {
    p.clear_backups();
    v1::PartitionRange& range = ranges.emplace_back();
    range.set_partition(p.partition());
    range.set_begin(p.begin());
    range.set_end(p.end());
  }
  job.returned.clear();
  const std::vector<PartitionCopies> placed = PlacePartitions(ranges, std::move(loads), job.status.spec().backups());
  for (int i = 0; i < job.status.partitions_size(); ++i) {
    v1::PartitionPlacement& p = *job.status.mutable_partitions(i);
    p.set_primary(placed[i].primary);
    p.set_primary_address(members_.Find(placed[i].primary)->address);
    for (const NodeName& name : placed[i].backups) {
      v1::BackupPlacement& b = *p.add_backups();
      b.set_node(name);
      b.set_address(members_.Find(name)->address);
    }
  }
  job.version.assign(placed.size(), 0);
  NewGeneration(job);
}

void ClusterCore::NewGeneration(Job& job, uint64_t at_least) {
  if (!job.finalize_worker.empty()) {  // its answer will be of this generation
    job.finalize_worker.clear();
    job.finalize_at = now_;
  }
  // A ps that has not heard of the one that takes the partitions back goes back with this one. Where others came back
  // meanwhile, it is decided anew (FallBack).
  const bool goes_back = job.rolling_back && !job.recovered;
  job.status.set_generation(std::max(job.status.generation(), at_least) + 1);
  if (goes_back) job.rollback_generation = job.status.generation();
  job.caught_up.clear();
  job.lost.clear();
  job.repair_due = true;
  StoreJob(job);
  Log("job %d: generation %d: partitions go to %s", job.id(), job.status.generation(),
      absl::StrJoin(job.primaries(), ", "));
  job.awaiting_ready = true;
  job.ready.assign(job.status.partitions_size(), false);
  job.version.resize(job.status.partitions_size(), 0);
  if (!job.restore_from.empty())
    job.version.assign(job.version.size(), 0);  // some may be filled from the checkpoint already
  job.at.assign(job.status.partitions_size(), {});
  HostAll(job, true);
  UpdateReason(job);
}

// Tells every ps what it has to hold, where that is news to it. One that was started anew serves nothing before it is
// settled what of it is taken: its disk may be behind, or another one. A copy that was not complete is none to be
// taken.
void ClusterCore::HostAll(Job& job, bool anew) {
  for (ClusterNode* ps : members_.Connected(v1::PS)) {
    const bool unsettled = std::any_of(job.returned.begin(), job.returned.end(), [&](const auto& r) {
      if (r.first.second != ps->name) return false;
      v1::PartitionPlacement& p = *job.status.mutable_partitions(static_cast<int>(r.first.first));
      const v1::BackupPlacement* backup = FindBackup(p, ps->name);
      return p.primary() == ps->name || (backup != nullptr && Complete(*backup));
    });
    if (unsettled) continue;
    if (job.UsesPs(ps->name)) {
      Host(job, *ps, anew);
    } else if (ps->hosting.erase(job.id()) > 0) {
      Send(*ps, MakeDropJob(job.id()));
    }
  }
}

// One that is left out serves nothing more before it is started anew: what it has may not be what it acknowledged.
void ClusterCore::Host(const Job& job, ClusterNode& ps, bool anew) {
  if (LeftOut(job, ps)) return;
  v1::CoordinatorMessage message = MakeHostPartitions(job, ps.name, anew);
  const size_t hash = std::hash<std::string>()(message.SerializeAsString());
  if (std::exchange(ps.hosting[job.id()], hash) == hash && !anew) return;
  Send(ps, std::move(message));
}

// Whether the partition is this ps' to serve.
bool ClusterCore::MarkReady(Job& job, const NodeName& ps, const v1::HeldPartition& held) {
  const uint32_t partition = held.partition();
  if (partition >= job.ready.size() || job.status.partitions(static_cast<int>(partition)).primary() != ps) return false;
  job.ready[partition] = true;
  job.version[partition] = std::max(job.version[partition], held.version());
  job.at[partition] = held;
  return true;
}

void ClusterCore::AllReady(Job& job) {
  if (!job.active() || !job.awaiting_ready) return;
  if (!std::all_of(job.ready.begin(), job.ready.end(), [](bool r) { return r; })) return;
  if (job.recovered) {
    if (job.synchronous() ? FallBack(job) : GoOnFromWhatIsLeft(job)) return;
    job.recovered = false;
    StoreJob(job);
  } else if (std::exchange(job.rolling_back, false)) {
    StoreJob(job);
  }
  job.awaiting_ready = false;
  copies_due_.insert(job.id());
  if (EndFormers(job)) {  // before the workers push in this generation
    StoreJob(job);
    HostAll(job, false);
  }
  if (job.progress) job.progress->Restart(now_);
  if (job.starting() && !job.restore_from.empty() && job.restored_in != job.status.generation()) {
    job.restore_worker.clear();
    TryRestore(job);
    return UpdateReason(job);
  }
  if (job.starting() && std::exchange(job.restores_best, false)) {
    job.has_best = true;
    job.restore_from.clear();
    return BeginFinalizing(job);
  }
  if (job.starting()) {
    job.restore_from.clear();
    Transition(job, v1::RUNNING);
    if (job.status.started_unix_ms() == 0) job.status.set_started_unix_ms(absl::ToUnixMillis(now_));
    // A copy of its own: emplace ends what it was told of before it makes the new one.
    job.progress.emplace(job.status, std::vector<int64_t>(job.progress->replica_step()), std::vector<bool>{}, now_);
    StoreJob(job);
    Log("job %d: running: steps %d to %d", job.id(), job.progress->step(), job.status.total_steps());
  }
  UpdateReason(job);
  SendAssignments(job);
  if (job.finalizing()) TryFinalize(job);
}

// ---- run ----

void ClusterCore::Advance(Job& job) {
  const int closed = job.progress->CloseEpochs(now_, options_.report_grace, job.status);
  for (int i = job.status.epochs_size() - closed; i < job.status.epochs_size(); ++i) {
    v1::EpochResult& epoch = *job.status.mutable_epochs(i);
    const v1::JobSpec& spec = job.status.spec();
    epoch.set_learning_rate(RateAt(job, (i + 1) * job.status.steps_per_epoch() - 1));
    Log("job %d: epoch %d/%d in %.1f s: %s; validation: %s", job.id(), i + 1, spec.epochs(), epoch.seconds(),
        FiguresText(spec, epoch.train()), FiguresText(spec, epoch.validation()));
  }
  if (closed > 0) StoreJob(job);
  if (closed > 0 || job.progress->AsksForFigures(now_, job.status)) SendFiguresStored(job);
  ConsiderBest(job);
  NoteStepFigures(job);
  NoteFinite(job);
  DecideEpochs(job);
  if (closed > 0 && job.running()) SendSummaries(job);
  if (!job.running() || !job.progress->Done(now_, job.status)) return;
  job.progress->CloseAll(now_, job.status);
  if ((Undecided(job) && job.status.epochs_open() <= job.status.epochs_size()) || LastCheckpointMayCome(job) ||
      !FilesWritten(job) || RestoreBest(job)) {
    return;
  }
  Log("job %d: all steps are done; its last values are written to disk, then the digest is taken", job.id());
  BeginFinalizing(job);
}

// ---- finalize ----
//
// A job is complete when what it ends with is on the disk of every primary, and the digest is of exactly that:
//   1. A new generation, stored with the state FINALIZING, tells the ps that the job trains no more
//      (HostPartitions.keep): nothing of before moves a partition any more, and those whose version is in memory alone
//      write an image. That is once the values and slots of a SNAPSHOT job, on each ps one partition after the other;
//      the others have it in their log.
//   2. When every primary has said that its partitions are there, their versions are stored (StoredJob.final_versions).
//   3. A worker takes the digest, of those versions.
// A ps that is lost before it has written takes the job back to where its disk is (cluster_rollback.cc), and the steps
// are done again; one that is lost later comes back with all, and the digest is taken then.

void ClusterCore::BeginFinalizing(Job& job) {
  Transition(job, v1::FINALIZING);
  reschedule_ = true;  // its slots are free
  NewGeneration(job);
}

// Steps are to be done again.
void ClusterCore::BackToRunning(Job& job) {
  Transition(job, v1::RUNNING);
  job.final_versions.clear();
  job.finalize_worker.clear();
  job.finalize_attempts = 0;
  job.finalize_at = now_;
  reschedule_ = true;
}

// Once for each end: a partition that comes back at another version is not what the job ends with, and the digest is
// refused.
void ClusterCore::NoteFinalVersions(Job& job) {
  if (!job.final_versions.empty()) return;
  std::vector<uint64_t> versions;
  for (const v1::HeldPartition& at : job.at) versions.push_back(at.version());
  job.final_versions = std::move(versions);
  StoreJob(job);
}

void ClusterCore::TryFinalize(Job& job) {
  if (!job.finalize_worker.empty()) {
    if (now_ < job.finalize_at) return;
    return FinalizeFailed(job, absl::StrFormat("worker \"%s\" did not answer", job.finalize_worker));
  }
  if (job.awaiting_ready || !MissingPs(job).empty()) {
    job.finalize_attempts = 0;  // those failed because of the ps; it is waited for
    return;
  }
  if (std::any_of(job.at.begin(), job.at.end(), [](const auto& at) { return at.in_memory(); }))
    return;  // the reason says so
  NoteFinalVersions(job);
  if (now_ < job.finalize_at) return;
  const std::vector<ClusterNode*> workers = Askable(v1::WORKER, &job);
  if (workers.empty()) return;
  const ClusterNode* worker = workers[job.finalize_attempts % workers.size()];
  const auto chief =
      std::find_if(workers.begin(), workers.end(), [&](auto* w) { return w->name == job.status.chief(); });
  if (job.finalize_attempts == 0 && chief != workers.end()) worker = *chief;
  job.finalize_worker = worker->name;
  job.finalize_at = now_ + options_.finalize_timeout;
  Send(*worker, MakeFinalize(job));
}

void ClusterCore::OnFinalized(const ClusterNode& node, const v1::FinalizeReply& reply) {
  Job* job = Find(reply.job_id());
  if (job == nullptr || !job->finalizing()) return;
  if (reply.generation() != 0 && reply.generation() != job->status.generation()) return;  // superseded
  if (job->awaiting_ready || job->final_versions.empty()) return;                         // likewise
  if (!reply.error().empty() || reply.digest().empty()) {
    if (job->finalize_worker != node.name) return;  // an answer that was given up
    return FinalizeFailed(*job, absl::StrFormat("worker \"%s\": %s", node.name, CutUtf8(reply.error(), kErrorTextMax)));
  }
  job->status.set_digest(std::string(CutUtf8(reply.digest(), 64)));
  EndComplete(*job, std::string(CutUtf8(reply.not_finite(), kNameTextMax)));
}

void ClusterCore::FinalizeFailed(Job& job, const std::string& why) {
  TellWarning(job, "the digest was not taken: %s", why);
  job.finalize_worker.clear();
  // Doubling: the attempts together last longer than it takes to see that a ps is gone.
  job.finalize_at = now_ + kFinalizeAgainAfter * (1 << std::min(job.finalize_attempts, 6));
  if (++job.finalize_attempts < options_.finalize_attempts_max) return;
  EndJob(job, v1::FAILED, absl::StrCat("all steps are done, but the digest of the weights could not be taken: ", why));
}

}  // namespace cairn
