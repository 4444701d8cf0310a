#include "coordinator/core/reconciler.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/limits.h"
#include "common/base/text.h"
#include "common/model/role_text.h"
#include "coordinator/core/limits.h"
#include "coordinator/core/partition_copies.h"

namespace cairn {
namespace {

constexpr int kRestartsTold = 2;  // restarts of a worker at one step of a job that are reported

// Sets the node's address in the job's placement. Returns whether it changed.
bool SetAddress(Job& job, const ClusterNode& node) {
  bool moved = false;
  for (v1::PartitionPlacement& p : *job.status.mutable_partitions()) {
    if (p.primary() == node.name && p.primary_address() != node.address) {
      p.set_primary_address(node.address);
      moved = true;
    }
    for (v1::BackupPlacement& b : *p.mutable_backups()) {
      if (b.node() != node.name || b.address() == node.address) continue;
      b.set_address(node.address);
      moved = true;
    }
  }
  return moved;
}

// What is said of a ps that keeps partitions of these jobs aside, which wait for `away`.
std::string AsideText(std::vector<std::string> jobs, const std::set<NodeName>& away) {
  const size_t more = jobs.size() - std::min(jobs.size(), kJobsNamedMax);
  jobs.resize(jobs.size() - more);
  return absl::StrFormat(
      "holds partitions of %s %s%s of which no other copy is there, and keeps them: if it is ps \"%s\" under another "
      "name, stop it, remove the file \"name\" in its data directory, and restart it with --name %s",
      jobs.size() == 1 ? "job" : "jobs", absl::StrJoin(jobs, ", "),
      more > 0 ? absl::StrFormat(" and %d more", more) : "", absl::StrJoin(away, "\" or \""),
      absl::StrJoin(away, " or "));
}

const v1::HeldPartitions* FindHeld(const v1::Hello& hello, uint64_t job_id) {
  for (const v1::HeldPartitions& held : hello.held()) {
    if (held.job_id() == job_id) return &held;
  }
  return nullptr;
}

}  // namespace

void Reconciler::OnJobError(const ClusterNode& node, const v1::JobError& error) {
  Job* job = jobs_.Find(error.job_id());
  if (job == nullptr || !job->active()) return;
  if (error.generation() != 0 && error.generation() != job->status.generation()) return;  // superseded
  const std::string message =
      absl::StrFormat("%s \"%s\": %s", RoleText(node.role), node.name, CutUtf8(error.message(), kErrorTextMax));
  if (!job->UsesPs(node.name) && job->ReplicasOf(node.name).empty()) {
    return step_.Warn(OfJob(job->id()), "%s, which does not take part in it; ignored", message.substr(0, 1000));
  }
  if (node.role == v1::PS) return LeavePsOut(*job, node, message);
  if (!error.worker_only() || !candidates_.OthersMayWork(*job, node.name))
    return endings_.End(*job, v1::FAILED, message);
  jobs_.TellWarning(*job, "continues without %s", message);
  job->workers.left_out.Add(node.name, node.incarnation, std::string(CutUtf8(message, kLeftOutTextMax)));
  step_.Raise(SlotsChanged{});
  step_.Raise(ReasonDue{job->id()});
  jobs_.Save(*job);
}

// Excludes a ps that is unusable for the job: the job starts or continues with others, or fails for that reason.
void Reconciler::LeavePsOut(Job& job, const ClusterNode& node, const std::string& message) {
  const bool serve = candidates_.OthersServe(job, node.name);
  // Copies of others are kept while the best epoch's weights are restored too (Job::keeps_updates).
  const bool keeps = job.ran() || (job.best.restoring && serve);
  const bool others = !keeps || serve;
  job.workers.left_out.Add(node.name, node.incarnation, std::string(CutUtf8(message, kLeftOutTextMax)));
  jobs_.Save(job);
  if (!job.active()) return step_.Warn(OfJob(job.id()), "%s", message);
  // A job that has run continues with fewer copies: it is filled from a checkpoint at this time.
  const size_t least = job.status.started_unix_ms() == 0 ? static_cast<size_t>(1 + job.status.spec().backups()) : 1;
  if (!others || (!keeps && candidates_.PsThere(job) < least)) {
    return endings_.End(job, v1::FAILED, message);
  }
  jobs_.TellWarning(job, "%s without %s", keeps ? "goes on" : "begins", message);
  if (keeps) {
    copies_.Settle(job);
  } else {
    hosting_.PlaceAnew(job);
  }
  step_.Raise(ReasonDue{job.id()});
  jobs_.Changed(job);
}

// ---- ps ----
void Reconciler::ReconcilePs(const Membership::Admission& admission, const v1::Hello& hello) {
  ClusterNode& node = *admission.node;
  node.work.hosting.clear();
  node.work.aside.clear();
  node.work.not_ready.reset();
  step_.Raise(ReadinessDue{});
  if (!admission.same_process) copies_.ForgetLinksOf(node.name);
  DropOld(admission, hello);
  for (const uint64_t id : jobs_.ByUrgency()) {
    Job& job = jobs_.At(id);
    if (job.starting() && !job.keeps_updates() && !candidates_.MissingPs(job).empty()) hosting_.PlaceAnew(job);
    if (!job.UsesPs(node.name)) continue;
    ReconcilePsJob(job, admission, FindHeld(hello, id));
    step_.Raise(ReasonDue{job.id()});
  }
}

// What it holds of jobs that do not use it: it was replaced while it was away, or the job was deleted. But both job ids
// and generations must be ones that were given out, and the job must go on from other copies.
void Reconciler::DropOld(const Membership::Admission& admission, const v1::Hello& hello) {
  ClusterNode& node = *admission.node;
  std::vector<std::string> moved_away, failed;  // jobs
  for (const v1::HeldPartitions& held : hello.held()) {
    const Job* job = jobs_.Find(held.job_id());
    if (job != nullptr && job->UsesPs(node.name)) {
      node.work.hosting[held.job_id()] = 0;
      continue;
    }
    if (job != nullptr && KeepAside(node, *job, held)) continue;
    if (held.job_id() >= jobs_.next_id() || (job != nullptr && held.generation() > job->status.generation())) {
      step_.Warn(OfNode(node),
                 "holds partitions of job %d in generation %d, which this coordinator has not given to it: its "
                 "state is older than the ps' data; "
                 "the ps drops them",
                 held.job_id(), held.generation());
    } else {
      (job != nullptr && job->state() == v1::FAILED ? failed : moved_away).push_back(absl::StrCat(held.job_id()));
    }
    step_.Send(node, MakeDropJob(held.job_id()));
  }
  if (!moved_away.empty()) {
    step_.Log(OfNode(node), "drops its old partitions of jobs that continued without it, or were deleted: %s",
              absl::StrJoin(moved_away, ", "));
  }
  if (!failed.empty()) {
    step_.Warn(OfNode(node), "drops its old partitions of jobs that have failed: %s", absl::StrJoin(failed, ", "));
  }
}

// Whether the job may need them: no copy of one of them is there.
bool Reconciler::Needed(const Job& job, const KeptAside& aside) const {
  if (!job.keeps_updates()) return false;
  return std::any_of(aside.partitions.begin(), aside.partitions.end(), [&](uint32_t partition) {
    return static_cast<int>(partition) < job.status.partitions_size() &&
           !candidates_.CopyThere(job, job.status.partitions(static_cast<int>(partition)));
  });
}

// Returns whether the ps keeps them. It serves nothing of the job meanwhile, and is given no other copies of it.
bool Reconciler::KeepAside(ClusterNode& ps, const Job& job, const v1::HeldPartitions& held) {
  KeptAside aside{.partitions = {}, .since = step_.now()};
  for (const v1::HeldPartition& p : held.partitions()) {
    if (p.partition() < static_cast<uint32_t>(job.status.partitions_size())) aside.partitions.push_back(p.partition());
  }
  if (!Needed(job, aside)) return false;
  ps.work.aside[job.id()] = std::move(aside);
  return true;
}

void Reconciler::Tick() {
  for (ClusterNode* ps : nodes_.Connected(v1::PS)) {
    std::set<NodeName> away;
    std::vector<std::string> told;  // jobs
    for (auto it = ps->work.aside.begin(); it != ps->work.aside.end();) {
      Job* job = jobs_.Find(it->first);
      if (job != nullptr && Needed(*job, it->second)) {
        // Copies that have only lost their connection are back within a lease.
        if (!it->second.told && step_.now() - it->second.since >= options_.lease) {
          away.merge(TellAside(*ps, *job, it->second));
          told.push_back(absl::StrCat(it->first));
        }
        ++it;
        continue;
      }
      DropAside(*ps, it->first, job);
      it = ps->work.aside.erase(it);
    }
    if (!told.empty()) step_.Warn(OfNode(*ps), "%s", AsideText(std::move(told), away));
  }
}

void Reconciler::DropAside(const ClusterNode& ps, uint64_t id, Job* job) {
  step_.Send(ps, MakeDropJob(id));
  if (job != nullptr && job->state() == v1::FAILED) {
    step_.Warn(OfNode(ps), "drops its old partitions of jobs that have failed: %d", id);
  } else {
    step_.Log(OfNode(ps), "drops its old partitions of job %d, which needs them no more", id);
  }
  if (job != nullptr) job->partitions.copies.RepairLater();  // the ps may be given copies again
}

// An event of the job; one line of the log covers all jobs. Returns the ps that the job waits for.
std::set<NodeName> Reconciler::TellAside(const ClusterNode& ps, Job& job, KeptAside& aside) {
  aside.told = true;
  std::set<NodeName> away;
  for (const uint32_t partition : aside.partitions) {
    const v1::PartitionPlacement& p = job.status.partitions(static_cast<int>(partition));
    if (!candidates_.CopyThere(job, p)) away.insert(p.primary());
  }
  jobs_.NoteEvent(job, true, absl::StrFormat("ps \"%s\" %s", ps.name, AsideText({absl::StrCat(job.id())}, away)));
  return away;
}

void Reconciler::ReconcilePsJob(Job& job, const Membership::Admission& admission, const v1::HeldPartitions* held) {
  ClusterNode& node = *admission.node;
  const bool moved = SetAddress(job, node);
  const uint64_t generation = job.status.generation();
  const uint64_t held_generation = held == nullptr ? 0 : held->generation();
  // A restarted process serves nothing until it is told to, whatever its directory holds.
  const bool anew = !admission.same_process;
  if (held_generation > generation && held_generation - generation > kGenerationsAheadMax) {
    return LeavePsOut(
        job, node,
        absl::StrFormat("ps \"%s\": what it holds of job %d is in generation %d, but the job is in %d: its data "
                        "directory is another cluster's, or damaged; start it with an empty one",
                        node.name, job.id(), held_generation, generation));
  }
  if (anew) job.partitions.reconciling.untold.insert(node.name);
  if (anew && job.keeps_updates()) copies_.NoteReturned(job, node, held);
  if (!anew && job.ran()) NoteLostMemory(job, node, held);
  if (held_generation > generation) return hosting_.NewGeneration(job, held_generation);
  const bool restarted =
      anew || (!admission.was_alive && (!job.partitions.hosting.awaiting_ready || held_generation != generation));
  if (job.finished()) {
    job.partitions.copies.SettleLater(/*renew=*/moved || (restarted && !anew));
    return;
  }
  // Stores the new address and the new generation together: with the address alone, a restarted coordinator would not
  // notice the change.
  if (job.keeps_updates() && copies_.Settle(job)) return;
  if (job.keeps_updates() && anew) {  // its copies wait for others that may have more updates
    if (moved) jobs_.Save(job);
    return;
  }
  if (job.ran() || !job.restoring.from.empty() ? moved || restarted : anew && job.HasBackups())
    return hosting_.NewGeneration(job);
  if (moved) jobs_.Save(job);
  int covered = 0;
  const bool to_be_kept =
      job.finalizing() && held != nullptr &&
      std::any_of(held->partitions().begin(), held->partitions().end(), [](const auto& p) { return p.in_memory(); });
  if (!job.partitions.reconciling.untold.contains(node.name) && held_generation == generation && held != nullptr) {
    for (const v1::HeldPartition& p : held->partitions()) covered += hosting_.MarkReady(job, node.name, p);
  }
  const bool complete = covered == job.PartitionsOn(node.name);
  if (!complete || job.HasBackups() || to_be_kept) hosting_.Host(job, node, held_generation < generation);
  runs_.AllReady(job);
}

// The process is the same, but it does not list a copy that had all updates: its store failed, and the copy was lost.
// The ps reports this too (OnJobError), but perhaps for an earlier generation, and in any case later.
void Reconciler::NoteLostMemory(Job& job, const ClusterNode& node, const v1::HeldPartitions* held) {
  if (candidates_.LeftOut(job, node)) return;
  // It is changing generations, and lists nothing for a moment.
  if (held != nullptr && held->partitions().empty() && held->generation() != job.status.generation()) return;
  for (v1::PartitionPlacement& p : *job.status.mutable_partitions()) {
    const v1::BackupPlacement* backup = FindBackup(p, node.name);
    if (p.primary() != node.name && (backup == nullptr || !Complete(*backup))) continue;
    if (job.partitions.copies.returned.contains({p.partition(), node.name})) continue;  // it was given no role yet
    const bool named = held != nullptr && std::any_of(held->partitions().begin(), held->partitions().end(),
                                                      [&](const auto& h) { return h.partition() == p.partition(); });
    if (named) continue;
    const std::string why = absl::StrFormat(
        "ps \"%s\": partition %d is not in its memory any more: its store failed (see its log); restart it", node.name,
        p.partition());
    jobs_.TellWarning(job, "continues without %s", why);
    job.workers.left_out.Add(node.name, node.incarnation, why);
    jobs_.Save(job);
    return;
  }
}

void Reconciler::OnPartitionsReady(const ClusterNode& node, const v1::PartitionsReady& ready) {
  Job* job = jobs_.Find(ready.job_id());
  if (job == nullptr) return step_.Send(node, MakeDropJob(ready.job_id()));
  if (!job->active() || ready.generation() != job->status.generation()) return;  // superseded
  job->partitions.reconciling.untold.erase(node.name);
  for (const v1::HeldPartition& p : ready.partitions()) {
    const bool serves = p.partition() < job->partitions.hosting.versions.size() &&
                        job->status.partitions(static_cast<int>(p.partition())).primary() == node.name;
    // While the job is filled from a checkpoint any version is right.
    if (serves && job->restoring.from.empty() && p.version() < job->partitions.hosting.versions[p.partition()]) {
      return endings_.End(
          *job, v1::FAILED,
          absl::StrFormat("ps \"%s\" loaded version %d of partition %d, but version %d was reached; see its log",
                          node.name, p.version(), p.partition(), job->partitions.hosting.versions[p.partition()]));
    }
    hosting_.MarkReady(*job, node.name, p);
  }
  runs_.AllReady(*job);
  if (job->finalizing()) runs_.TryFinalize(*job);
  step_.Raise(ReasonDue{job->id()});
}

// Other ps serve its partitions from now on, or the partitions wait for it.
void Reconciler::OnPsLost(const NodeName& ps) {
  int ended = 0;
  for (const uint64_t id : jobs_.ByUrgency()) {
    Job& job = jobs_.At(id);
    if (job.queued() || !job.UsesPs(ps)) continue;
    if (job.finished()) {
      job.partitions.copies.SettleLater(/*renew=*/false);
      ++ended;
      continue;
    }
    if (!job.keeps_updates()) {
      hosting_.PlaceAnew(job);
    } else if (!copies_.Settle(job) && job.PrimariesOn(ps) > 0) {
      jobs_.TellWarning(job, "waits for ps \"%s\"", ps);
    }
    step_.Raise(ReasonDue{job.id()});
  }
  if (ended > 0)
    step_.Log({.role = v1::PS, .node = ps},
              "held weights of %d jobs that have ended: other copies take their place, where there are any", ended);
}

// ---- workers ----
void Reconciler::ReconcileWorker(const Membership::Admission& admission, const v1::Hello& hello) {
  ClusterNode& node = *admission.node;
  if (!admission.same_process) {
    crash_loops_.NoteEnd(node.name, /*gone=*/false);
    crash_loops_.QuarantineCrashLoopingWorker(node);
    if (admission.was_alive) TellRestart(node);
  }
  node.work.running.clear();
  for (const v1::HeldReplicas& running : hello.running()) {
    Job* job = jobs_.Find(running.job_id());
    if (job == nullptr || !job->active()) {
      step_.Send(node, MakeDropJob(running.job_id(), job != nullptr && job->state() == v1::CANCELLED));
      continue;
    }
    job->workers.told.Runs(node.name);
    RunningReplicas& known = node.work.running[running.job_id()];
    known.generation = running.generation();
    known.replicas.assign(running.replicas().begin(), running.replicas().end());
    std::sort(known.replicas.begin(), known.replicas.end());
  }
  // Schedule does the rest: new commands where the worker runs something else.
}

// Reports a worker that restarted before it was missed.
void Reconciler::TellRestart(const ClusterNode& worker) {
  for (auto& [id, job] : jobs_.all()) {
    const std::vector<int32_t> replicas = job.ReplicasOf(worker.name);
    if (!job.running() || replicas.empty() || !candidates_.MayWork(job, worker)) continue;
    // Repeated crashes are handled by CrashLoops.
    if (const auto ends = job.workers.crash_loops.ends.find(worker.name);
        ends != job.workers.crash_loops.ends.end() && ends->second.times > kRestartsTold)
      continue;
    jobs_.TellWarning(job, "worker \"%s\" was restarted and computes its replicas %s again", worker.name,
                      ReplicaListText(replicas));
  }
}

}  // namespace cairn
