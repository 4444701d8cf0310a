// What a node says it has, in its Hello or when its partitions are ready, compared with what it should have.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/cluster_core.h"
#include "coordinator/copies.h"

namespace cairn {
namespace {

// A ps can be ahead of us where our newest state was lost, by what happened since.
constexpr uint64_t kGenerationsAheadMax = 1 << 20;

// The node's address in the job's placement. Whether it was another.
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

const v1::HeldPartitions* FindHeld(const v1::Hello& hello, uint64_t job_id) {
  for (const v1::HeldPartitions& held : hello.held()) {
    if (held.job_id() == job_id) return &held;
  }
  return nullptr;
}

}  // namespace

// ---- ps ----

void ClusterCore::ReconcilePs(const Membership::Admission& admission, const v1::Hello& hello) {
  ClusterNode& node = *admission.node;
  node.hosting.clear();
  node.not_ready.reset();
  readiness_due_ = true;
  if (!admission.same_process) links_.ForgetPs(node.name);
  std::vector<std::string> moved_away;  // jobs
  for (const v1::HeldPartitions& held : hello.held()) {
    const Job* job = Find(held.job_id());
    if (job != nullptr && job->UsesPs(node.name)) {
      node.hosting[held.job_id()] = 0;
      continue;
    }
    // Others took its place while it was away, or the job was deleted. But what was given out is known, and in no later
    // generation.
    if (held.job_id() >= next_job_id_ || (job != nullptr && held.generation() > job->status.generation())) {
      Warn(
          "ps \"%s\" holds partitions of job %d in generation %d, which this coordinator has not given to it: its "
          "state is older than the ps' data; "
          "the ps drops them",
          node.name, held.job_id(), held.generation());
    } else {
      moved_away.push_back(absl::StrCat(held.job_id()));
    }
    Send(node, MakeDropJob(held.job_id()));
  }
  if (!moved_away.empty()) {
    Log("ps \"%s\" drops its old partitions of jobs that went on without it, or were deleted: %s", node.name,
        absl::StrJoin(moved_away, ", "));
  }
  for (const uint64_t id : ByUrgency()) {
    Job& job = jobs_.at(id);
    if (job.starting() && !job.ran() && !MissingPs(job).empty()) PlaceAnew(job);
    if (!job.UsesPs(node.name)) continue;
    ReconcilePsJob(job, admission, FindHeld(hello, id));
    UpdateReason(job);
  }
}

void ClusterCore::ReconcilePsJob(Job& job, const Membership::Admission& admission, const v1::HeldPartitions* held) {
  ClusterNode& node = *admission.node;
  const bool moved = SetAddress(job, node);
  const uint64_t generation = job.status.generation();
  const uint64_t held_generation = held == nullptr ? 0 : held->generation();
  // A process that was started anew serves nothing before it is told to, whatever its directory holds.
  const bool anew = !admission.same_process;
  if (held_generation > generation && held_generation - generation > kGenerationsAheadMax) {
    return LeavePsOut(
        job, node,
        absl::StrFormat("ps \"%s\": what it holds of job %d is in generation %d, but the job is in %d: its data "
                        "directory is another cluster's, or damaged; start it with an empty one",
                        node.name, job.id(), held_generation, generation));
  }
  if (anew) job.untold.insert(node.name);
  if (anew && job.ran()) NoteReturned(job, node, held);
  if (!anew && job.ran()) NoteLostMemory(job, node, held);
  if (held_generation > generation) return NewGeneration(job, held_generation);
  const bool restarted = anew || (!admission.was_alive && (!job.awaiting_ready || held_generation != generation));
  if (job.finished()) {
    job.settle_due = true;
    job.renew_due = job.renew_due || moved || (restarted && !anew);
    return;
  }
  // One Store for the new address and the new generation: with the address alone, a restart of ours would find nothing
  // amiss.
  if (job.ran() && SettleCopies(job)) return;
  if (job.ran() && anew) {  // its copies wait for others that may know more
    if (moved) StoreJob(job);
    return;
  }
  if (job.ran() || !job.restore_from.empty() ? moved || restarted : anew && job.HasBackups()) return NewGeneration(job);
  if (moved) StoreJob(job);
  int covered = 0;
  const bool to_be_kept =
      job.finalizing() && held != nullptr &&
      std::any_of(held->partitions().begin(), held->partitions().end(), [](const auto& p) { return p.in_memory(); });
  if (!job.untold.contains(node.name) && held_generation == generation && held != nullptr) {
    for (const v1::HeldPartition& p : held->partitions()) covered += MarkReady(job, node.name, p);
  }
  const bool complete = covered == job.PartitionsOn(node.name);
  if (!complete || job.HasBackups() || to_be_kept) Host(job, node, held_generation < generation);
  AllReady(job);
}

// The process is the same, but it does not name a copy that had everything: its store failed, and the copy went with
// it. It says so itself (OnJobError), but perhaps of an earlier generation, and in any case later.
void ClusterCore::NoteLostMemory(Job& job, const ClusterNode& node, const v1::HeldPartitions* held) {
  if (LeftOut(job, node)) return;
  // It is on its way from one generation to another, and names nothing for a moment.
  if (held != nullptr && held->partitions().empty() && held->generation() != job.status.generation()) return;
  for (v1::PartitionPlacement& p : *job.status.mutable_partitions()) {
    const v1::BackupPlacement* backup = FindBackup(p, node.name);
    if (p.primary() != node.name && (backup == nullptr || !Complete(*backup))) continue;
    if (job.returned.contains({p.partition(), node.name})) continue;  // it was given no role yet
    const bool named = held != nullptr && std::any_of(held->partitions().begin(), held->partitions().end(),
                                                      [&](const auto& h) { return h.partition() == p.partition(); });
    if (named) continue;
    const std::string why = absl::StrFormat(
        "ps \"%s\": partition %d is not in its memory any more: its store failed (see its log); restart it", node.name,
        p.partition());
    TellWarning(job, "goes on without %s", why);
    job.left_out[node.name] = {node.incarnation, why};
    StoreJob(job);
    return;
  }
}

void ClusterCore::OnPartitionsReady(const ClusterNode& node, const v1::PartitionsReady& ready) {
  Job* job = Find(ready.job_id());
  if (job == nullptr) return Send(node, MakeDropJob(ready.job_id()));
  if (!job->active() || ready.generation() != job->status.generation()) return;  // superseded
  job->untold.erase(node.name);
  for (const v1::HeldPartition& p : ready.partitions()) {
    const bool serves = p.partition() < job->version.size() &&
                        job->status.partitions(static_cast<int>(p.partition())).primary() == node.name;
    // While it is filled from a checkpoint any version is right.
    if (serves && job->restore_from.empty() && p.version() < job->version[p.partition()]) {
      return EndJob(
          *job, v1::FAILED,
          absl::StrFormat("ps \"%s\" loaded version %d of partition %d, but version %d was reached; see its log",
                          node.name, p.version(), p.partition(), job->version[p.partition()]));
    }
    MarkReady(*job, node.name, p);
  }
  AllReady(*job);
  if (job->finalizing()) TryFinalize(*job);
  UpdateReason(*job);
}

// ---- workers ----

void ClusterCore::ReconcileWorker(const Membership::Admission& admission, const v1::Hello& hello) {
  ClusterNode& node = *admission.node;
  if (!admission.same_process) {
    NoteEnd(node.name, /*gone=*/false);
    LeaveOutWhoEnds(node);
  }
  node.running.clear();
  for (const v1::HeldReplicas& running : hello.running()) {
    const Job* job = Find(running.job_id());
    if (job == nullptr || !job->active()) {
      Send(node, MakeDropJob(running.job_id()));
      continue;
    }
    RunningReplicas& known = node.running[running.job_id()];
    known.generation = running.generation();
    known.replicas.assign(running.replicas().begin(), running.replicas().end());
    std::sort(known.replicas.begin(), known.replicas.end());
  }
  // The rest, new commands where it runs something else, is Schedule's.
}

}  // namespace cairn
