// The copies of partitions: which of them serves, and which may take its place.
//
// A copy is in sync when it has every update that was acknowledged; the flag is stored before a primary is told that it
// holds. Rules:
//   1. Only a copy that has every acknowledged update is made the primary: one in sync, or a former one (rule 4).
//      Nobody acknowledges without the copies in sync, so a promotion is safe while the old primary still runs: the new
//      one refuses it by the generation.
//   2. A copy whose process ended is not in sync until the primary reports that it has caught up in the present
//      generation. A copy in sync is taken away by a new generation; others come and go within one.
//   3. Where no copy in sync is alive with its memory, one that comes back with its disk is taken: with a log before
//      the reply it has all that was acknowledged; without, the best of those that come back, and a synchronous job
//      falls back to a version that all its partitions can go back to.
//   4. A promotion leaves the copies behind that cannot be reached at that moment: the old primary, and lost backups in
//      sync. A new primary has no requests of its own before the workers are told of its generation, so that until then
//      nothing is acknowledged without them: they are kept as former copies, which may be promoted should the new
//      primary be lost as well. What ends them is stored before the assignments go out (EndFormers). Where a primary
//      stays, and a backup is lost or taken away, there is no such time: the primary answers what waited for that
//      backup as soon as it hears of the generation.
//   5. A primary that cannot reach a backup says so, and goes on waiting for it. The backup is taken away by rule 2,
//      and is then like any other ps (cluster_links.cc). Only the primary of the present generation is heard, never the
//      backup: of two ends of a cut link that both are primaries, each keeps its own partitions.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/fault_check.h"
#include "coordinator/cluster_core.h"
#include "coordinator/copies.h"

namespace cairn {

// ---- who is there ----

// Alive, and fit to work for the job; else null.
const ClusterNode* ClusterCore::UsablePs(const Job& job, const NodeName& name) const {
  const ClusterNode* node = members_.Find(name);
  const bool usable = node != nullptr && node->role == v1::PS && node->alive && !LeftOut(job, *node);
  return usable ? node : nullptr;
}

bool ClusterCore::LeftOut(const Job& job, const ClusterNode& node) const {
  auto it = job.left_out.find(node.name);
  return it != job.left_out.end() && it->second.incarnation == node.incarnation;
}

// It is to hold no partitions: drained by a user, or its store failed.
bool ClusterCore::Draining(const NodeName& name) const {
  const ClusterNode* node = members_.Find(name);
  return node != nullptr && node->leaving();
}

// How many ps can be given copies of the job.
size_t ClusterCore::PsThere(const Job& job) {
  const std::vector<ClusterNode*> all = members_.Connected(v1::PS);
  return std::count_if(all.begin(), all.end(), [&](auto* ps) { return !ps->leaving() && !LeftOut(job, *ps); });
}

// They, with the bytes that they hold for all jobs, or all others.
std::vector<PsLoad> ClusterCore::PsLoads(const Job& job, bool with_own) {
  std::map<NodeName, PsLoad> loads;
  for (const ClusterNode* ps : members_.Connected(v1::PS)) {
    if (!ps->leaving() && !LeftOut(job, *ps)) loads[ps->name] = {ps->name, ps->host, 0};
  }
  for (auto& [name, load] : loads) load.bytes = usage_.BytesOn(name) - usage_.BytesOn(name, job.id());
  if (with_own) {  // as it is now: it may not be stored yet
    for (const v1::PartitionPlacement& p : job.status.partitions()) {
      for (const NodeName& holder : HoldersOf(p)) {
        if (auto it = loads.find(holder); it != loads.end()) it->second.bytes += BytesOf(p);
      }
    }
  }
  std::vector<PsLoad> result;
  for (auto& [name, load] : loads) result.push_back(std::move(load));
  return result;
}

// ---- losses ----

// The ps was started anew: of its copies only what its disk holds is left.
void ClusterCore::NoteReturned(Job& job, const ClusterNode& node, const v1::HeldPartitions* held) {
  for (const v1::PartitionPlacement& p : job.status.partitions()) {
    const std::vector<NodeName> holders = HoldersOf(p);
    if (std::find(holders.begin(), holders.end(), node.name) == holders.end()) continue;
    Job::Returned& returned = job.returned[{p.partition(), node.name}] = {};
    returned.since = now_;
    if (held == nullptr) continue;
    for (const v1::HeldPartition& h : held->partitions()) {
      if (h.partition() == p.partition()) returned.held = h;
    }
  }
}

// Promotes, takes out and demotes where copies were lost. True: a new generation was begun, or the job ended.
bool ClusterCore::SettleCopies(Job& job) {
  bool changed = false;
  const std::vector<NodeName> before = PrimariesOf(job);
  std::set<NodeName> back;
  for (v1::PartitionPlacement& p : *job.status.mutable_partitions()) {
    const NodeName primary = p.primary();
    const bool came_back = job.returned.contains({p.partition(), primary});
    const SettleResult result = SettlePartition(job, p);
    if (result == SettleResult::kLost) return true;
    if (came_back && result == SettleResult::kChanged && p.primary() == primary) back.insert(primary);
    changed = changed || result == SettleResult::kChanged;
  }
  if (!changed) return false;
  for (const NodeName& name : back) Tell(job, "ps \"%s\" is back: its partitions are taken up from its disk", name);
  TellPromotions(job, before);
  Recruit(job);
  NewGeneration(job);
  return true;
}

ClusterCore::SettleResult ClusterCore::SettlePartition(Job& job, v1::PartitionPlacement& p) {
  const auto returned = [&](const NodeName& name) { return job.returned.contains({p.partition(), name}); };
  const ClusterNode* primary = UsablePs(job, p.primary());
  if (primary != nullptr && !returned(p.primary())) {
    // A primary without a session may be dead already. What its backups in sync have on their disks may be needed then:
    // they stay what they are until it is known.
    if (!primary->connected()) return SettleResult::kSame;
    bool changed = RemoveBackups(p, [&](const auto& b) { return !b.former() && UsablePs(job, b.node()) == nullptr; });
    for (v1::BackupPlacement& b : *p.mutable_backups()) {
      if (!returned(b.node())) continue;
      b.set_former(b.former() && StaysComplete(job, p.partition(), b.node()));
      job.returned.erase({p.partition(), b.node()});
      b.set_in_sync(false);
      changed = true;
    }
    return changed ? SettleResult::kChanged : SettleResult::kSame;
  }
  NodeName heir;
  for (const v1::BackupPlacement& b : p.backups()) {
    const ClusterNode* node = UsablePs(job, b.node());
    if (!Complete(b) || node == nullptr || !node->connected() || returned(b.node())) continue;
    if (heir.empty() || (members_.Find(heir)->leaving() && !node->leaving())) heir = b.node();
  }
  if (heir.empty()) return SettleFromDisk(job, p);
  // It has all that was acknowledged. The last primary may have named an update more, which nobody had confirmed.
  job.version[p.partition()] = 0;
  MakePrimary(job, p, heir);
  return SettleResult::kChanged;
}

// The least version that a copy with every acknowledged update can have; 0 where that is not known. A ps names what it
// has applied, and not all of that was acknowledged: of a synchronous partition all but the last update, for the one
// after it is made of weights that the workers were given; of an asynchronous one all but one update of each replica,
// which waits for the answer to it. At the end of a job there is no such update.
uint64_t ClusterCore::LeastVersion(const Job& job, uint32_t partition) const {
  if (IsComplete(job.state()) && partition < job.final_versions.size()) return job.final_versions[partition];
  if (!job.active() || !LogsBeforeReply(job.status.spec().durability())) return 0;
  if (job.finalizing()) {  // all is acknowledged, and nobody sends an update again
    if (partition < job.final_versions.size()) return job.final_versions[partition];
    if (job.synchronous() && !job.has_best) return static_cast<uint64_t>(job.status.total_steps());
  }
  const uint64_t unsettled = job.synchronous() ? 1 : static_cast<uint64_t>(std::max(1, job.status.spec().replicas()));
  uint64_t least = job.version[partition] - std::min(job.version[partition], unsettled);
  // A report may run ahead of the update by what is in flight. The best epoch's weights are of a step before.
  if (job.synchronous() && job.progress && !job.has_best)
    least = std::max<uint64_t>(least, std::max<int64_t>(0, job.progress->step() - 2));
  return least;
}

// No copy in sync has its memory.
ClusterCore::SettleResult ClusterCore::SettleFromDisk(Job& job, v1::PartitionPlacement& p) {
  const bool logs = LogsBeforeReply(job.status.spec().durability());
  const uint64_t least = LeastVersion(job, p.partition());
  bool away = false;
  std::string lost;
  absl::Time since = absl::InfiniteFuture();
  const v1::HeldPartition* best = nullptr;
  NodeName best_name;
  for (const NodeName& name : HoldersOf(p)) {
    const v1::BackupPlacement* backup = FindBackup(p, name);
    if (backup != nullptr && !Complete(*backup)) continue;
    const ClusterNode* node = UsablePs(job, name);
    const auto it = job.returned.find({p.partition(), name});
    if (node == nullptr || !node->connected() || it == job.returned.end()) {
      away = true;
    } else if (!it->second.held) {
      lost = absl::StrFormat(
          "ps \"%s\" came back without partition %d of this job: its data directory was emptied or replaced, or is "
          "damaged (see its log), and there is no other copy",
          name, p.partition());
    } else if (it->second.held->version() < least) {
      lost = absl::StrFormat(
          "ps \"%s\" came back with version %d of partition %d, but version %d was acknowledged: its data directory is "
          "an old copy",
          name, it->second.held->version(), p.partition(), least);
    } else {
      since = std::min(since, it->second.since);
      if (best == nullptr || it->second.held->version() > best->version()) {
        best = &*it->second.held;
        best_name = name;
      }
    }
  }
  if (best == nullptr) {
    if (away || lost.empty()) return SettleResult::kSame;
    LoseWeights(job, lost);
    return SettleResult::kLost;
  }
  // Another may know more.
  if (!logs && away && now_ - since < options_.copies_grace) return SettleResult::kSame;
  job.version[p.partition()] = best->version();
  job.recovered = true;
  if (best_name == p.primary()) {
    job.returned.erase({p.partition(), best_name});
    for (v1::BackupPlacement& b : *p.mutable_backups()) {
      b.set_in_sync(false);
      b.set_former(false);
    }
    SettlePartition(job, p);  // its backups
  } else {
    MakePrimary(job, p, best_name);
  }
  return SettleResult::kChanged;
}

void ClusterCore::LoseWeights(Job& job, const std::string& why) {
  if (RestoreInstead(job, why)) return;
  if (job.active()) return EndJob(job, v1::FAILED, absl::StrCat(why, "; submit the job again"));
  const std::string lost = absl::StrCat("its weights are lost: ", why, "; submit the job again");
  TellWarning(job, "%s", lost);
  job.status.clear_partitions();
  job.returned.clear();
  job.status.set_reason(absl::StrCat(job.status.reason(), job.status.reason().empty() ? "" : "; ", lost));
  StoreJob(job);
  DropFromNodes(job.id(), v1::PS);
}

// Whether a copy that had every acknowledged update has them still: in memory, or on its disk, which may be another one
// now.
bool ClusterCore::StaysComplete(const Job& job, uint32_t partition, const NodeName& name) const {
  const ClusterNode* node = members_.Find(name);
  if (node != nullptr && LeftOut(job, *node)) return false;
  const auto returned = job.returned.find({partition, name});
  if (returned == job.returned.end()) return true;
  const auto& held = returned->second.held;
  return LogsBeforeReply(job.status.spec().durability()) && held && held->version() >= LeastVersion(job, partition);
}

// The old primary, where it is alive, and the other backups follow the new one from now on, and begin with its image.
// Those that have every acknowledged update stay in sync, the old primary too where it hands over as `planned`: should
// the new one die before it has brought them up to date, nothing is lost. What cannot follow now, but has every
// acknowledged update, becomes a former copy (rule 4).
void ClusterCore::MakePrimary(Job& job, v1::PartitionPlacement& p, const NodeName& heir, bool planned) {
  const NodeName old = p.primary();
  const auto returned = [&](const NodeName& name) { return job.returned.contains({p.partition(), name}); };
  const auto there = [&](const NodeName& name) {
    const ClusterNode* node = UsablePs(job, name);
    return node != nullptr && node->connected();
  };
  RemoveBackups(p, [&](const auto& b) { return b.node() == heir; });
  for (v1::BackupPlacement& b : *p.mutable_backups()) {
    const bool stays = Complete(b) && StaysComplete(job, p.partition(), b.node());
    b.set_in_sync(b.in_sync() && UsablePs(job, b.node()) != nullptr && !returned(b.node()));
    b.set_former(stays && !b.in_sync());
  }
  RemoveBackups(p, [&](const auto& b) { return !b.former() && UsablePs(job, b.node()) == nullptr; });
  const bool stays = StaysComplete(job, p.partition(), old);
  if (there(old) || stays) {
    v1::BackupPlacement& b = *p.add_backups();
    b.set_node(old);
    b.set_address(there(old) ? members_.Find(old)->address : p.primary_address());
    b.set_in_sync(planned && there(old) && !returned(old));
    b.set_former(stays && !b.in_sync());
  }
  p.set_primary(heir);
  p.set_primary_address(members_.Find(heir)->address);
  job.returned.erase(job.returned.lower_bound({p.partition(), NodeName()}),
                     job.returned.lower_bound({p.partition() + 1, NodeName()}));
}

// The copies begin with the image of the primary, whose weights are other ones from now on; those that are not there
// cannot.
void ClusterCore::BeginCopiesAnew(Job& job) {
  for (v1::PartitionPlacement& p : *job.status.mutable_partitions()) {
    RemoveBackups(p, [&](const v1::BackupPlacement& b) { return UsablePs(job, b.node()) == nullptr; });
    for (v1::BackupPlacement& b : *p.mutable_backups()) {
      b.set_in_sync(false);
      b.set_former(false);
    }
  }
}

// The workers are about to be told of the generation: from now on updates are acknowledged without the former copies.
// Those that are there go on as backups that have to catch up. True: there were some.
bool ClusterCore::EndFormers(Job& job) {
  bool changed = false;
  for (v1::PartitionPlacement& p : *job.status.mutable_partitions()) {
    RemoveBackups(p, [&](const v1::BackupPlacement& b) {
      if (!b.former()) return false;
      changed = true;
      return UsablePs(job, b.node()) == nullptr || links_.Cut(p.primary(), b.node(), now_);
    });
    for (v1::BackupPlacement& b : *p.mutable_backups()) b.set_former(false);
  }
  return changed;
}

}  // namespace cairn
