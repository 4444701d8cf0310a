// Copies are kept so many, and evenly spread: lost ones are replaced, drained ps are emptied, ps that joined take their
// share. All of it while training goes on; the rules are in cluster_copies.cc.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/text.h"
#include "coordinator/cluster_core.h"
#include "coordinator/copies.h"

namespace cairn {
namespace {

// Copies of one job that are being brought up to date at the same time: lost ones are replaced soon, moves take their
// time.
constexpr int kSyncingMax = 32;
constexpr int kMovingMax = 4;
// Copies of all ended jobs together that are being brought up to date: in the cluster, and with an end on one ps.
constexpr int kEndedSyncingMax = 32;
constexpr int kEndedSyncingPerPsMax = 8;
// Ended jobs that are looked at in one Tick, where ps came or went.
constexpr int kEndedPerTick = 4;
// Between a ps' arrival and the first move to it, and between looks at the balance of a job.
constexpr absl::Duration kBalanceAfter = absl::Seconds(2);
constexpr size_t kLostTextMax = 200;

}  // namespace

void ClusterCore::OnBackupReport(const ClusterNode& node, const v1::BackupReport& report) {
  Job* job = Find(report.job_id());
  if (job == nullptr || report.generation() != job->status.generation()) return;  // superseded
  if (report.partition() >= static_cast<uint32_t>(job->status.partitions_size())) {
    return Warn("job %d: ps \"%s\" reports a backup of partition %d, which is not there; ignored", job->id(), node.name,
                report.partition());
  }
  v1::PartitionPlacement& p = *job->status.mutable_partitions(static_cast<int>(report.partition()));
  if (p.primary() != node.name || FindBackup(p, report.node()) == nullptr) return;
  job->repair_due = true;  // the next Tick deals with all of them together
  if (report.lost().empty()) {
    job->caught_up.insert({report.partition(), report.node()});
    links_.NoteReached(node.name, report.node());
  } else {
    job->lost[{report.partition(), report.node()}] = {std::string(CutUtf8(report.lost(), kLostTextMax)), report.busy()};
  }
}

// Whether one more copy of an ended job may catch up with this ps at an end. `more`: that are not in usage_ yet.
bool ClusterCore::MayRecruit(const NodeName& ps, const std::map<NodeName, int>& more) const {
  int all = 0;
  for (const auto& [name, copies] : more) all += copies;
  const auto own = more.find(ps);
  return usage_.EndedSyncing() + all / 2 < kEndedSyncingMax &&
         usage_.EndedSyncingOn(ps) + (own == more.end() ? 0 : own->second) < kEndedSyncingPerPsMax;
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
  std::map<NodeName, int> recruited;  // of each ps, here
  for (v1::PartitionPlacement& p : *job.status.mutable_partitions()) {
    if (syncing >= kSyncingMax) break;
    if (UsablePs(job, p.primary()) == nullptr || (job.finished() && !MayRecruit(p.primary(), recruited))) continue;
    const std::vector<NodeName> holders = HoldersOf(p);
    const auto leaving = std::count_if(holders.begin(), holders.end(), [&](auto& h) {
      return Draining(h) || (h != p.primary() && (UsablePs(job, h) == nullptr || links_.Cut(p.primary(), h, now_)));
    });
    const auto move = job.moves.find(p.partition());
    const bool moves = move != job.moves.end() && !links_.Cut(p.primary(), move->second, now_) &&
                       std::find(holders.begin(), holders.end(), move->second) == holders.end();
    const auto shift = job.shifts.find(p.partition());
    const bool shifts = shift != job.shifts.end() && !links_.Cut(p.primary(), shift->second.second, now_) &&
                        std::find(holders.begin(), holders.end(), shift->second.second) == holders.end();
    if (static_cast<int>(holders.size() - leaving) >= wanted && !moves && !shifts) continue;
    if ((leaving > 0 || moves || shifts) && syncing >= kMovingMax) continue;
    if (!std::exchange(loaded, true)) loads = PsLoads(job);
    std::vector<std::string> hosts;
    for (const NodeName& holder : holders) {
      if (const ClusterNode* node = members_.Find(holder); node != nullptr && !node->leaving())
        hosts.push_back(node->host);
    }
    std::vector<PsLoad> reachable = loads;
    std::erase_if(reachable, [&](const PsLoad& load) {
      return links_.Cut(p.primary(), load.name, now_) || (job.finished() && !MayRecruit(load.name, recruited));
    });
    const NodeName target = moves ? move->second : shifts ? shift->second.second : PickCopy(holders, hosts, reachable);
    if (target.empty()) continue;
    v1::BackupPlacement& b = *p.add_backups();
    b.set_node(target);
    b.set_address(members_.Find(target)->address);
    job.returned.erase({p.partition(), target});
    for (PsLoad& load : loads) {
      if (load.name == target) load.bytes += BytesOf(p);
    }
    ++syncing;
    ++recruited[target];
    ++recruited[p.primary()];
    added = true;
  }
  return added;
}

// What time, reports and wishes bring: copies in sync are noted, planned moves are made, superfluous copies go.
void ClusterCore::RepairCopies(Job& job) {
  if (job.queued() || job.status.partitions_size() == 0 || (job.active() && job.awaiting_ready)) return;
  if (!job.repair_due && now_ < job.balance_at) return;
  job.repair_due = false;
  bool stored = !job.active() && EndFormers(job);
  bool raised = TakeLostAway(job, &stored);
  const std::set<std::pair<uint32_t, NodeName>> reported = std::exchange(job.caught_up, {});
  for (const auto& [partition, name] : reported) {
    v1::BackupPlacement* b = FindBackup(*job.status.mutable_partitions(static_cast<int>(partition)), name);
    const ClusterNode* node = UsablePs(job, name);
    if (b == nullptr || b->in_sync() || node == nullptr || job.returned.contains({partition, name})) continue;
    b->set_in_sync(true);
    stored = true;
  }
  PlanMoves(job);
  const size_t there = PsThere(job);
  const std::set<NodeName> leaving = LeavingHolders(job);
  for (v1::PartitionPlacement& p : *job.status.mutable_partitions()) raised = Move(job, p, there) || raised;
  for (const NodeName& name : leaving) {
    if (!job.UsesPs(name)) Tell(job, "ps \"%s\" holds nothing of the job any more: it may be stopped", name);
  }
  stored = Recruit(job) || stored;
  if (raised) return NewGeneration(job);
  if (!stored) return;
  job.repair_due = true;
  StoreJob(job);
  HostAll(job, false);
}

// ---- who comes first ----

// Jobs that run, then those that start, those that wait, and those that have ended.
std::vector<uint64_t> ClusterCore::ByUrgency() const {
  const auto rank = [](const Job& job) { return job.finished() ? 3 : job.queued() ? 2 : job.starting() ? 1 : 0; };
  std::vector<std::pair<int, uint64_t>> ranked;
  for (const auto& [id, job] : jobs_) ranked.emplace_back(rank(job), id);
  std::sort(ranked.begin(), ranked.end());
  std::vector<uint64_t> ids;
  for (const auto& [first, id] : ranked) ids.push_back(id);
  return ids;
}

// Its copies are to be looked at: a ps came back or was lost, or they are not where they should be.
bool ClusterCore::EndedAndDue(const Job& job) const {
  if (!job.finished() || job.status.partitions_size() == 0) return false;
  return job.settle_due || job.renew_due || !job.returned.empty() || job.repair_due || now_ >= job.balance_at;
}

// Ended jobs whose copies are to be looked at, a few at a time, in turn: nobody waits for them, and there may be many.
void ClusterCore::TendEnded() {
  std::vector<uint64_t> due;
  for (const auto& [id, job] : jobs_) {
    if (EndedAndDue(job)) due.push_back(id);
  }
  std::rotate(due.begin(), std::upper_bound(due.begin(), due.end(), last_tended_), due.end());
  if (due.size() > kEndedPerTick) due.resize(kEndedPerTick);
  for (const uint64_t id : due) {
    last_tended_ = id;
    TendEndedJob(jobs_.at(id));
  }
}

void ClusterCore::TendEndedJob(Job& job) {
  const bool settle = std::exchange(job.settle_due, false);
  if ((settle || !job.returned.empty()) && SettleCopies(job)) return;
  if (std::exchange(job.renew_due, false)) return NewGeneration(job);
  if (settle) HostAll(job, false);
  RepairCopies(job);
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
      if (!b.in_sync() || node == nullptr || !node->connected() || node->leaving()) continue;
      const bool wished = move != job.moves.end() && move->second == b.node();
      if (wished || (drained && heir.empty())) heir = b.node();
    }
    if (heir.empty()) return false;
    Log("job %d: partition %d moves from ps \"%s\" to \"%s\"", job.id(), p.partition(), p.primary(), heir);
    job.moves.erase(p.partition());
    job.version[p.partition()] = 0;  // as in a promotion
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
  if (const auto shift = job.shifts.find(p.partition()); shift != job.shifts.end()) {
    const v1::BackupPlacement* to = FindBackup(p, shift->second.second);
    if (to == nullptr || !to->in_sync()) return false;
    const NodeName from = shift->second.first;
    Log("job %d: a backup of partition %d moves from ps \"%s\" to \"%s\"", job.id(), p.partition(), from, to->node());
    job.shifts.erase(shift);
    return RemoveBackups(p, [&](const v1::BackupPlacement& b) { return b.node() == from; });
  }
  return RemoveBackups(p, [&](const v1::BackupPlacement& b) {
    if (Draining(b.node())) return true;
    if (staying <= wanted || (b.in_sync() && in_sync <= wanted)) return false;
    --staying;
    in_sync -= b.in_sync();
    return true;
  });
}

// Where nothing else is under way, a primary moves to a ps that has less; and where they are even, a backup.
void ClusterCore::PlanMoves(Job& job) {
  std::erase_if(job.moves, [&](const auto& move) {
    const ClusterNode* to = UsablePs(job, move.second);
    return to == nullptr || to->leaving();
  });
  std::erase_if(job.shifts, [&](const auto& shift) {
    v1::PartitionPlacement& p = *job.status.mutable_partitions(static_cast<int>(shift.first));
    const auto& [from, to] = shift.second;
    return FindBackup(p, from) == nullptr || p.primary() == to || UsablePs(job, to) == nullptr || Draining(to) ||
           Draining(from) || links_.Cut(p.primary(), to, now_);
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
    if (!move || job.moves.contains(static_cast<uint32_t>(move->partition))) break;
    job.moves[static_cast<uint32_t>(move->partition)] = move->to;
    copies[move->partition].primary = move->to;
  }
  while (job.moves.empty() && static_cast<int>(job.shifts.size()) < kMovingMax) {
    const std::optional<BackupMove> move = NextBackupMove(bytes, copies, loads);
    if (!move || job.shifts.contains(static_cast<uint32_t>(move->partition))) break;
    job.shifts[static_cast<uint32_t>(move->partition)] = {move->from, move->to};
    std::replace(copies[move->partition].backups.begin(), copies[move->partition].backups.end(), move->from, move->to);
  }
}

}  // namespace cairn
