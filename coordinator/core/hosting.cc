#include "coordinator/core/hosting.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "common/model/fault_check.h"
#include "coordinator/core/partition_copies.h"

namespace cairn {

// Copies begin with the image of the primary, whose weights are replaced. Copies that are not present cannot.
void Hosting::BeginCopiesAnew(Job& job) {
  for (v1::PartitionPlacement& p : *job.status.mutable_partitions()) {
    RemoveBackups(p, [&](const v1::BackupPlacement& b) { return candidates_.UsablePs(job, b.node()) == nullptr; });
    for (v1::BackupPlacement& b : *p.mutable_backups()) {
      b.set_in_sync(false);
      b.set_former(false);
    }
  }
}

// An absent node says what it holds when it comes back, and gets the command then.
void Hosting::DropFromNodes(uint64_t job_id, v1::Role role, bool cancelled) {
  for (ClusterNode* node : nodes_.Connected(role)) {
    if (role == v1::WORKER && node->work.running.erase(job_id) == 0) continue;
    node->work.hosting.erase(job_id);
    node->work.aside.erase(job_id);
    step_.Send(*node, MakeDropJob(job_id, cancelled));
  }
}

// Assigns partitions to the ps that are present. Only for a job that has not run: nothing is lost.
void Hosting::PlaceAnew(Job& job) {
  const std::vector<PsLoad> loads = candidates_.PsLoads(job, false);
  if (loads.empty()) return;  // the reason says so; the next ps that joins leads here again
  std::vector<v1::PartitionRange> ranges;
  for (v1::PartitionPlacement& p : *job.status.mutable_partitions()) {
    p.clear_backups();
    v1::PartitionRange& range = ranges.emplace_back();
    range.set_partition(p.partition());
    range.set_begin(p.begin());
    range.set_end(p.end());
  }
  job.partitions.copies.ForgetReturned();
  const std::vector<PartitionCopies> placed = PlacePartitions(ranges, loads, job.status.spec().backups());
  for (int i = 0; i < job.status.partitions_size(); ++i) {
    v1::PartitionPlacement& p = *job.status.mutable_partitions(i);
    p.set_primary(placed[i].primary);
    p.set_primary_address(nodes_.Find(placed[i].primary)->address);
    for (const NodeName& name : placed[i].backups) {
      v1::BackupPlacement& b = *p.add_backups();
      b.set_node(name);
      b.set_address(nodes_.Find(name)->address);
    }
  }
  job.partitions.hosting.versions.assign(placed.size(), 0);
  NewGeneration(job);
}

void Hosting::NewGeneration(Job& job, uint64_t at_least) {
  job.end.AskAnew(step_.now());  // the answer will be for this generation
  // A ps that has not heard of the rollback rolls back with this generation. If others returned meanwhile, it is
  // decided again (FallBack).
  const bool goes_back = job.partitions.rollback.under_way && !job.partitions.rollback.recovered;
  job.status.set_generation(std::max(job.status.generation(), at_least) + 1);
  if (goes_back) job.partitions.rollback.RefuseBefore(job.status.generation());
  job.partitions.copies.BeginGeneration();
  jobs_.Save(job);
  step_.Log(OfJob(job.id()), "generation %d: partitions go to %s", job.status.generation(),
            absl::StrJoin(job.primaries(), ", "));
  job.partitions.hosting.awaiting_ready =
      !job.finished();  // for an ended job nothing waits for it: the ps have what is on their disks
  job.partitions.hosting.ready.assign(job.status.partitions_size(), false);
  job.partitions.hosting.versions.resize(job.status.partitions_size(), 0);
  if (!job.restoring.from.empty())
    job.partitions.hosting.SetVersions(0);  // some may already be filled from the checkpoint
  job.partitions.hosting.held.assign(job.status.partitions_size(), {});
  HostAll(job, true);
  step_.Raise(ReasonDue{job.id()});
}

// Whether it is not settled yet which of a restarted ps' copies are used: its disk may be behind, or may have been
// replaced. An incomplete copy is never used.
bool Hosting::Unsettled(const Job& job, const NodeName& ps) const {
  const auto& returned = job.partitions.copies.returned;
  return std::any_of(returned.begin(), returned.end(), [&](const auto& r) {
    if (r.first.second != ps) return false;
    const v1::PartitionPlacement& p = job.status.partitions(static_cast<int>(r.first.first));
    return p.primary() == ps || std::any_of(p.backups().begin(), p.backups().end(),
                                            [&](const auto& b) { return b.node() == ps && Complete(b); });
  });
}

// Tells every ps what it has to hold, if that has changed.
void Hosting::HostAll(Job& job, bool anew) {
  const PartitionsByPs held = job.partitions_by_ps();  // in one pass: there may be many of both
  for (ClusterNode* ps : nodes_.Connected(v1::PS)) {
    if (const auto its = held.find(ps->name); its != held.end()) {
      Host(job, *ps, its->second, anew);
    } else if (ps->work.hosting.erase(job.id()) > 0) {
      step_.Send(*ps, MakeDropJob(job.id()));
    }
  }
}

// An excluded ps serves nothing until it is restarted: what it has may differ from what it acknowledged. A restarted
// one serves nothing until its copies are settled, also when the same process opens another session.
void Hosting::Host(const Job& job, ClusterNode& ps, bool anew) { Host(job, ps, job.PartitionsHeldBy(ps.name), anew); }

void Hosting::Host(const Job& job, ClusterNode& ps, const std::vector<int>& partitions, bool anew) {
  if (candidates_.LeftOut(job, ps) || Unsettled(job, ps.name)) return;
  if (ps.work.aside.erase(job.id()) > 0) step_.Send(ps, MakeDropJob(job.id()));  // the job begins anew
  v1::CoordinatorMessage message = MakeHostPartitions(job, ps.name, partitions, anew);
  const size_t hash = std::hash<std::string>()(message.SerializeAsString());
  if (std::exchange(ps.work.hosting[job.id()], hash) == hash && !anew) return;
  step_.Send(ps, std::move(message));
}

// Returns whether this ps is to serve the partition.
bool Hosting::MarkReady(Job& job, const NodeName& ps, const v1::HeldPartition& held) {
  const uint32_t partition = held.partition();
  if (partition >= job.partitions.hosting.ready.size() ||
      job.status.partitions(static_cast<int>(partition)).primary() != ps)
    return false;
  job.partitions.hosting.ready[partition] = true;
  job.partitions.hosting.versions[partition] = std::max(job.partitions.hosting.versions[partition], held.version());
  job.partitions.hosting.held[partition] = held;
  return true;
}

}  // namespace cairn
