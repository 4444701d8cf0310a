// The copies of partitions: which of them serves, which may take its place, and how they are kept so many.
//
// A copy is in sync when it has every update that was acknowledged; the flag is stored before a primary is told that it
// holds. Rules:
//   1. Only a copy in sync is made the primary. Nobody acknowledges without the copies in sync, so a promotion is safe
//      while the old primary still runs: the new one refuses it by the generation.
//   2. A copy whose process ended is not in sync until the primary reports that it has caught up in the present
//      generation. A copy is taken away by a new generation, added within one.
//   3. Where no copy in sync is alive with its memory, one that comes back with its disk is taken: with a log before the
//      reply it has all that was acknowledged; without, the best of those that come back, and a synchronous job falls
//      back to a version that all its partitions can go back to.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/model/fault_check.h"
#include "coordinator/cluster_core.h"

namespace cairn {
namespace {

// Copies of one job that are being brought up to date at the same time: lost ones are replaced soon, moves take their
// time.
constexpr int kSyncingMax = 32;
constexpr int kMovingMax = 4;
// Between a ps' arrival and the first move to it, and between looks at the balance of a job.
constexpr absl::Duration kBalanceAfter = absl::Seconds(2);
constexpr size_t kNamesInReasonMax = 3;

v1::BackupPlacement* FindBackup(v1::PartitionPlacement& p, const NodeName& node) {
  for (v1::BackupPlacement& b : *p.mutable_backups()) {
    if (b.node() == node) return &b;
  }
  return nullptr;
}

template <typename Predicate>
bool RemoveBackups(v1::PartitionPlacement& p, Predicate gone) {
  auto& backups = *p.mutable_backups();
  const auto end = std::remove_if(backups.begin(), backups.end(), gone);
  if (end == backups.end()) return false;
  backups.erase(end, backups.end());
  return true;
}

uint64_t BytesOf(const v1::PartitionPlacement& p) { return (p.end() - p.begin()) * sizeof(float); }

std::vector<NodeName> HoldersOf(const v1::PartitionPlacement& p) {
  std::vector<NodeName> holders{p.primary()};
  for (const v1::BackupPlacement& b : p.backups()) holders.push_back(b.node());
  return holders;
}

// The greatest version up to `most` at which the partition can be; nullopt: none.
std::optional<uint64_t> ReachableUpTo(const v1::HeldPartition& held, uint64_t most) {
  if (held.version() <= most) return held.version();
  if (held.version_min() <= most) return most;
  std::optional<uint64_t> best;
  for (uint64_t v : held.versions()) {
    if (v <= most && (!best || v > *best)) best = v;
  }
  return best;
}

}  // namespace

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

bool ClusterCore::Draining(const NodeName& name) const {
  const ClusterNode* node = members_.Find(name);
  return node != nullptr && node->draining;
}

// How many ps can be given copies of the job.
size_t ClusterCore::PsThere(const Job& job) {
  const std::vector<ClusterNode*> all = members_.Connected(v1::PS);
  return std::count_if(all.begin(), all.end(), [&](auto* ps) { return !ps->draining && !LeftOut(job, *ps); });
}

// They, with the bytes that they hold for all jobs, or all others.
std::vector<PsLoad> ClusterCore::PsLoads(const Job& job, bool with_own) {
  std::map<NodeName, PsLoad> loads;
  for (const ClusterNode* ps : members_.Connected(v1::PS)) {
    if (!ps->draining && !LeftOut(job, *ps)) loads[ps->name] = {ps->name, ps->host, 0};
  }
  for (const auto& [id, other] : jobs_) {
    if (id == job.id() && !with_own) continue;
    for (const v1::PartitionPlacement& p : other.status.partitions()) {
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
  for (v1::PartitionPlacement& p : *job.status.mutable_partitions()) {
    const SettleResult result = SettlePartition(job, p);
    if (result == SettleResult::kLost) return true;
    changed = changed || result == SettleResult::kChanged;
  }
  if (!changed) return false;
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
    bool changed = RemoveBackups(p, [&](const auto& b) { return UsablePs(job, b.node()) == nullptr; });
    for (v1::BackupPlacement& b : *p.mutable_backups()) {
      if (job.returned.erase({p.partition(), b.node()}) == 0) continue;
      b.set_in_sync(false);
      changed = true;
    }
    return changed ? SettleResult::kChanged : SettleResult::kSame;
  }
  NodeName heir;
  for (const v1::BackupPlacement& b : p.backups()) {
    const ClusterNode* node = UsablePs(job, b.node());
    if (!b.in_sync() || node == nullptr || !node->connected() || returned(b.node())) continue;
    if (heir.empty() || (members_.Find(heir)->draining && !node->draining)) heir = b.node();
  }
  if (heir.empty()) return SettleFromDisk(job, p);
  Warn("job %d: partition %d: \"%s\" takes the place of ps \"%s\"", job.id(), p.partition(), heir, p.primary());
  MakePrimary(job, p, heir);
  return SettleResult::kChanged;
}

// No copy in sync has its memory.
ClusterCore::SettleResult ClusterCore::SettleFromDisk(Job& job, v1::PartitionPlacement& p) {
  const bool logs = LogsBeforeReply(job.status.spec().durability());
  uint64_t least = job.version[p.partition()];
  if (job.synchronous() && job.progress && logs)  // a report may run ahead of the update by what is in flight
    least = std::max<uint64_t>(least, std::max<int64_t>(0, job.progress->step() - 2));
  bool away = false;
  std::string lost;
  absl::Time since = absl::InfiniteFuture();
  const v1::HeldPartition* best = nullptr;
  NodeName best_name;
  for (const NodeName& name : HoldersOf(p)) {
    const v1::BackupPlacement* backup = FindBackup(p, name);
    if (backup != nullptr && !backup->in_sync()) continue;
    const ClusterNode* node = UsablePs(job, name);
    const auto it = job.returned.find({p.partition(), name});
    if (node == nullptr || !node->connected() || it == job.returned.end()) {
      away = true;
    } else if (!it->second.held) {
      lost = absl::StrFormat(
          "ps \"%s\" came back without partition %d of this job: its data directory was emptied or replaced, or is "
          "damaged (see its log), and there is no other copy; submit the job again",
          name, p.partition());
    } else if (logs && job.active() && it->second.held->version() < least) {
      lost = absl::StrFormat(
          "ps \"%s\" came back with version %d of partition %d, but version %d was reached: its data directory is an "
          "old copy; submit the job again",
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
    for (v1::BackupPlacement& b : *p.mutable_backups()) b.set_in_sync(false);
    SettlePartition(job, p);  // its backups
  } else {
    MakePrimary(job, p, best_name);
  }
  return SettleResult::kChanged;
}

void ClusterCore::LoseWeights(Job& job, const std::string& why) {
  if (RestoreInstead(job, why)) return;
  if (job.active()) return EndJob(job, v1::FAILED, why);
  Warn("job %d: its weights are lost: %s", job.id(), why);
  job.status.clear_partitions();
  job.returned.clear();
  job.status.set_reason(
      absl::StrCat(job.status.reason(), job.status.reason().empty() ? "" : "; ", "its weights are lost: ", why));
  StoreJob(job);
  DropFromNodes(job.id(), v1::PS);
}

// The old primary, where it is alive, and the other backups follow the new one from now on, and begin with its image. Those that have
// every acknowledged update stay in sync, the old primary too where it hands over as `planned`: should the new one die before it
// has brought them up to date, nothing is lost.
void ClusterCore::MakePrimary(Job& job, v1::PartitionPlacement& p, const NodeName& heir, bool planned) {
  const NodeName old = p.primary();
  const auto returned = [&](const NodeName& name) { return job.returned.contains({p.partition(), name}); };
  RemoveBackups(p, [&](const auto& b) { return b.node() == heir || UsablePs(job, b.node()) == nullptr; });
  for (v1::BackupPlacement& b : *p.mutable_backups()) {
    if (returned(b.node())) b.set_in_sync(false);
  }
  if (const ClusterNode* node = UsablePs(job, old); node != nullptr && node->connected()) {
    v1::BackupPlacement& b = *p.add_backups();
    b.set_node(old);
    b.set_address(node->address);
    b.set_in_sync(planned && !returned(old));
  }
  p.set_primary(heir);
  p.set_primary_address(members_.Find(heir)->address);
  job.returned.erase(job.returned.lower_bound({p.partition(), NodeName()}),
                     job.returned.lower_bound({p.partition() + 1, NodeName()}));
}

// ---- repair, moves ----

void ClusterCore::OnBackupReport(const ClusterNode& node, const v1::BackupReport& report) {
  Job* job = Find(report.job_id());
  if (job == nullptr || report.generation() != job->status.generation()) return;  // superseded
  if (report.partition() >= static_cast<uint32_t>(job->status.partitions_size())) {
    return Warn("job %d: ps \"%s\" reports a backup of partition %d, which is not there; ignored", job->id(), node.name,
                report.partition());
  }
  v1::PartitionPlacement& p = *job->status.mutable_partitions(static_cast<int>(report.partition()));
  if (p.primary() != node.name || FindBackup(p, report.node()) == nullptr) return;
  job->repair_due = true;
  job->caught_up.insert({report.partition(), report.node()});  // the next Tick stores all of them together
}

// Adds copies where there are too few. `true`: something was added.
bool ClusterCore::Recruit(Job& job) {
  if (job.queued() || job.status.partitions_size() == 0) return false;
  const int wanted = 1 + job.status.spec().backups();
  int syncing = 0;
  for (const v1::PartitionPlacement& p : job.status.partitions()) {
    for (const v1::BackupPlacement& b : p.backups()) syncing += !b.in_sync();
  }
  std::vector<PsLoad> loads;
  bool loaded = false, added = false;
  for (v1::PartitionPlacement& p : *job.status.mutable_partitions()) {
    if (syncing >= kSyncingMax) break;
    if (UsablePs(job, p.primary()) == nullptr) continue;
    const std::vector<NodeName> holders = HoldersOf(p);
    const auto leaving = std::count_if(holders.begin(), holders.end(), [&](auto& h) { return Draining(h); });
    const auto move = job.moves.find(p.partition());
    const bool moves =
        move != job.moves.end() && std::find(holders.begin(), holders.end(), move->second) == holders.end();
    if (static_cast<int>(holders.size() - leaving) >= wanted && !moves) continue;
    if ((leaving > 0 || moves) && syncing >= kMovingMax) continue;
    if (!std::exchange(loaded, true)) loads = PsLoads(job);
    std::vector<std::string> hosts;
    for (const NodeName& holder : holders) {
      if (const ClusterNode* node = members_.Find(holder); node != nullptr && !node->draining)
        hosts.push_back(node->host);
    }
    const NodeName target = moves ? move->second : PickCopy(holders, hosts, loads);
    if (target.empty()) continue;
    v1::BackupPlacement& b = *p.add_backups();
    b.set_node(target);
    b.set_address(members_.Find(target)->address);
    job.returned.erase({p.partition(), target});
    for (PsLoad& load : loads) {
      if (load.name == target) load.bytes += BytesOf(p);
    }
    ++syncing;
    added = true;
  }
  return added;
}

// What time, reports and wishes bring: copies in sync are noted, planned moves are made, superfluous copies go.
void ClusterCore::RepairCopies(Job& job) {
  if (job.queued() || job.status.partitions_size() == 0 || (job.active() && job.awaiting_ready)) return;
  if (!job.repair_due && now_ < job.balance_at) return;
  job.repair_due = false;
  const std::set<std::pair<uint32_t, NodeName>> reported = std::exchange(job.caught_up, {});
  bool stored = false;
  for (const auto& [partition, name] : reported) {
    v1::BackupPlacement* b = FindBackup(*job.status.mutable_partitions(static_cast<int>(partition)), name);
    const ClusterNode* node = UsablePs(job, name);
    if (b == nullptr || b->in_sync() || node == nullptr || job.returned.contains({partition, name})) continue;
    b->set_in_sync(true);
    stored = true;
  }
  PlanMoves(job);
  const size_t there = PsThere(job);
  bool raised = false;
  for (v1::PartitionPlacement& p : *job.status.mutable_partitions()) raised = Move(job, p, there) || raised;
  stored = Recruit(job) || stored;
  if (raised) return NewGeneration(job);
  if (!stored) return;
  job.repair_due = true;
  StoreJob(job);
  HostAll(job, false);
}

// The planned change of one partition that is due: a promotion away from a leaving primary, or the end of a copy that
// is not needed any more. `there`: ps that can have copies.
bool ClusterCore::Move(Job& job, v1::PartitionPlacement& p, size_t there) {
  if (UsablePs(job, p.primary()) == nullptr) return false;
  const auto move = job.moves.find(p.partition());
  const bool drained = Draining(p.primary());
  if (drained || move != job.moves.end()) {
    NodeName heir;
    for (const v1::BackupPlacement& b : p.backups()) {
      const ClusterNode* node = UsablePs(job, b.node());
      if (!b.in_sync() || node == nullptr || !node->connected() || node->draining) continue;
      const bool wished = move != job.moves.end() && move->second == b.node();
      if (wished || (drained && heir.empty())) heir = b.node();
    }
    if (heir.empty()) return false;
    Log("job %d: partition %d moves from ps \"%s\" to \"%s\"", job.id(), p.partition(), p.primary(), heir);
    job.moves.erase(p.partition());
    MakePrimary(job, p, heir, true);
    return true;
  }
  // A holder whose session is broken may be dying: until that is settled, every copy is needed.
  for (const NodeName& holder : HoldersOf(p)) {
    const ClusterNode* node = members_.Find(holder);
    if (node == nullptr || !node->connected()) return false;
  }
  // Never fewer copies in sync than are wanted, or than there can be.
  const size_t wanted = std::min<size_t>(1 + job.status.spec().backups(), std::max<size_t>(1, there));
  size_t in_sync = 1, staying = 1;
  for (const v1::BackupPlacement& b : p.backups()) {
    if (Draining(b.node())) continue;
    ++staying;
    in_sync += b.in_sync();
  }
  if (in_sync < wanted) return false;
  return RemoveBackups(p, [&](const v1::BackupPlacement& b) {
    if (Draining(b.node())) return true;
    if (staying <= wanted || (b.in_sync() && in_sync <= wanted)) return false;
    --staying;
    in_sync -= b.in_sync();
    return true;
  });
}

// Where nothing else is under way, a primary moves to a ps that has less.
void ClusterCore::PlanMoves(Job& job) {
  std::erase_if(job.moves, [&](const auto& move) {
    const ClusterNode* to = UsablePs(job, move.second);
    return to == nullptr || to->draining;
  });
  if (now_ < job.balance_at) return;
  job.balance_at = now_ + kBalanceAfter;
  if (!job.running()) return;
  for (const v1::PartitionPlacement& p : job.status.partitions()) {
    for (const v1::BackupPlacement& b : p.backups()) {
      if (!b.in_sync()) return;
    }
    for (const NodeName& holder : HoldersOf(p)) {
      if (Draining(holder) || UsablePs(job, holder) == nullptr) return;
    }
  }
  std::vector<PsLoad> loads = PsLoads(job);
  std::erase_if(loads, [&](const PsLoad& load) { return now_ - members_.Find(load.name)->joined < kBalanceAfter; });
  std::vector<uint64_t> bytes;
  std::vector<PartitionCopies> copies;
  for (const v1::PartitionPlacement& p : job.status.partitions()) {
    bytes.push_back(BytesOf(p));
    PartitionCopies& c = copies.emplace_back();
    c.primary = p.primary();
    for (const v1::BackupPlacement& b : p.backups()) c.backups.push_back(b.node());
  }
  while (static_cast<int>(job.moves.size()) < kMovingMax) {
    const std::optional<PrimaryMove> move = NextPrimaryMove(bytes, copies, loads);
    if (!move || job.moves.contains(static_cast<uint32_t>(move->partition))) return;
    job.moves[static_cast<uint32_t>(move->partition)] = move->to;
    copies[move->partition].primary = move->to;
  }
}

// ---- falling back ----

// Called when all primaries of a synchronous job have said at which version they are. True: they are not at one that
// the job can go on from, and a new generation takes them to one, or the job failed.
bool ClusterCore::FallBack(Job& job) {
  uint64_t least = UINT64_MAX, most = 0;
  for (const v1::HeldPartition& at : job.at) {
    least = std::min(least, at.version());
    most = std::max(most, at.version());
  }
  job.recovered = false;
  // With a log before the reply nothing acknowledged is gone: partitions are at most one update apart, which the workers
  // send again. Without one the workers are ahead, even where all partitions agree.
  if (LogsBeforeReply(job.status.spec().durability()) && most - least <= 1) return false;
  std::optional<uint64_t> to = least;
  for (bool lowered = true; lowered && to;) {
    lowered = false;
    for (const v1::HeldPartition& at : job.at) {
      const std::optional<uint64_t> reached = ReachableUpTo(at, *to);
      if (reached == to) continue;
      to = reached;
      lowered = true;
      break;
    }
  }
  if (!to && job.status.spec().durability() == v1::SNAPSHOT) to = 0;  // before the first images: a function of the seed
  const int64_t step = job.progress ? job.progress->step() : 0;
  if (!to) {
    const std::string why = absl::StrFormat(
        "the ps came back with partitions at versions %d to %d and can take them back to no common one, because they "
        "did not log updates before the reply",
        least, most);
    if (RestoreInstead(job, why)) return true;
    EndJob(job, v1::FAILED,
           absl::StrCat(why, "; submit the job again, with durability: LOGGED_AND_REPLICATED or checkpoints"));
    return true;
  }
  Warn("job %d: falls back from step %d to %d: what came after was in the memory of ps that died", job.id(), step, *to);
  job.rollback_to = *to;
  job.rollback_generation = job.status.generation() + 1;
  job.version.assign(job.version.size(), *to);
  if (job.progress) job.progress->RollBack(static_cast<int64_t>(*to), now_);
  if (job.finalizing() && static_cast<int64_t>(*to) < job.status.total_steps()) {
    job.status.set_state(v1::RUNNING);
    job.finalize_worker.clear();
    job.finalize_attempts = 0;
    job.finalize_at = now_;
    reschedule_ = true;
  }
  for (v1::PartitionPlacement& p : *job.status.mutable_partitions()) {
    for (v1::BackupPlacement& b : *p.mutable_backups()) b.set_in_sync(false);
  }
  NewGeneration(job);
  return true;
}

// The partitions of an asynchronous job may each have lost updates: its replicas, also those that had finished, begin
// anew from what the partitions hold.
void ClusterCore::GoOnFromWhatIsLeft(Job& job) {
  if (LogsBeforeReply(job.status.spec().durability())) return;
  Warn("job %d: goes on from what its ps have kept; updates that were only in the memory of ps that died are computed again",
       job.id());
  job.rollback_generation = job.status.generation();
  if (job.progress) job.progress->RollBack(0, now_);
  if (!job.finalizing()) return;
  job.status.set_state(v1::RUNNING);
  job.finalize_worker.clear();
  job.finalize_attempts = 0;
  job.finalize_at = now_;
  reschedule_ = true;
}

// ---- reasons ----

// Why partitions are not served; empty: they are.
std::string ClusterCore::CopiesReason(const Job& job) const {
  int waiting = 0;
  std::set<NodeName> away, back;
  for (const v1::PartitionPlacement& p : job.status.partitions()) {
    const bool returned = job.returned.contains({p.partition(), p.primary()});
    if (UsablePs(job, p.primary()) != nullptr && !returned) continue;
    ++waiting;
    for (const NodeName& name : HoldersOf(p)) {
      v1::PartitionPlacement copy = p;
      if (name != p.primary() && !FindBackup(copy, name)->in_sync()) continue;
      (job.returned.contains({p.partition(), name}) ? back : away).insert(name);
    }
  }
  if (waiting == 0) return "";
  if (away.size() == 1 && back.empty()) {
    return absl::StrFormat("waits for ps \"%s\" to come back (its data directory holds %d partitions); restart it",
                           *away.begin(), job.PartitionsOn(*away.begin()));
  }
  std::vector<NodeName> names(away.begin(), away.end());
  const size_t more = names.size() - std::min(names.size(), kNamesInReasonMax);
  names.resize(names.size() - more);
  std::string text = absl::StrFormat(
      "waits for ps \"%s\"%s to come back: %d partitions have no other copy that is up to date; restart them",
      absl::StrJoin(names, "\", \""), more > 0 ? absl::StrFormat(" and %d more", more) : "", waiting);
  if (!back.empty()) absl::StrAppend(&text, " (\"", absl::StrJoin(back, "\", \""), "\" lost its memory)");
  return text;
}

}  // namespace cairn
