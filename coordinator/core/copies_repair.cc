#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/limits.h"
#include "common/base/text.h"
#include "coordinator/core/copies.h"
#include "coordinator/core/limits.h"
#include "coordinator/core/partition_copies.h"

namespace cairn {
namespace {

// Ended jobs that are checked in one Tick after a ps came or went.
constexpr int kEndedPerTick = 4;
// The delay between a ps' arrival and the first move to it, and between checks of a job's balance.
constexpr absl::Duration kBalanceAfter = absl::Seconds(2);
// Moves that go on are told this often: a job may have hundreds of partitions, and keeps a hundred events.
constexpr absl::Duration kMovesToldEvery = absl::Seconds(30);

using MovedCopies = std::map<std::pair<NodeName, NodeName>, int>;

// "3 partitions from ps "ps-0" to "ps-2"", for each pair of ps.
void AddMoved(const MovedCopies& moved, const char* what, std::vector<std::string>* parts) {
  for (const auto& [ends, count] : moved) {
    parts->push_back(absl::StrFormat("%s from ps \"%s\" to \"%s\"", CountText(count, what), ends.first, ends.second));
  }
}

}  // namespace

void Copies::OnBackupReport(const ClusterNode& node, const v1::BackupReport& report) {
  Job* job = jobs_.Find(report.job_id());
  if (job == nullptr || report.generation() != job->status.generation()) return;  // superseded
  if (report.partition() >= static_cast<uint32_t>(job->status.partitions_size())) {
    return step_.Warn(OfJob(job->id()), "ps \"%s\" reports a backup of partition %d, which is not there; ignored",
                      node.name, report.partition());
  }
  v1::PartitionPlacement& p = *job->status.mutable_partitions(static_cast<int>(report.partition()));
  if (p.primary() != node.name || FindBackup(p, report.node()) == nullptr) return;
  job->partitions.copies.repair_due = true;  // the next Tick handles all of them together
  if (report.lost().empty()) {
    job->partitions.copies.caught_up.insert({report.partition(), report.node()});
    links_.NoteReached(node.name, report.node());
  } else {
    job->partitions.copies.lost[{report.partition(), report.node()}] = {
        std::string(CutUtf8(report.lost(), kLostTextMax)), report.busy()};
  }
}

// Whether this ps may receive one more copy of an ended job. `more`: copies that usage_ does not include yet.
bool Copies::MayRecruit(const NodeName& ps, const std::map<NodeName, int>& more) const {
  int all = 0;
  for (const auto& [name, copies] : more) all += copies;
  const auto own = more.find(ps);
  return jobs_.usage().EndedSyncing() + all / 2 < kEndedCopiesSyncingMax &&
         jobs_.usage().EndedSyncingOn(ps) + (own == more.end() ? 0 : own->second) < kEndedCopiesSyncingPerPsMax;
}

// Adds copies where there are too few. Returns true if one was added.
bool Copies::Recruit(Job& job) {
  if (job.queued() || job.status.partitions_size() == 0) return false;
  const int wanted = 1 + job.status.spec().backups();
  int syncing = 0;
  for (const v1::PartitionPlacement& p : job.status.partitions()) {
    for (const v1::BackupPlacement& b : p.backups()) syncing += !b.in_sync();
  }
  std::vector<PsLoad> loads;
  bool loaded = false, added = false;
  std::map<NodeName, int> recruited;  // new copies per ps, in this call
  for (v1::PartitionPlacement& p : *job.status.mutable_partitions()) {
    if (syncing >= kCopiesSyncingMax) break;
    if (candidates_.UsablePs(job, p.primary()) == nullptr || (job.finished() && !MayRecruit(p.primary(), recruited)))
      continue;
    const std::vector<NodeName> holders = HoldersOf(p);
    const auto leaving = std::count_if(holders.begin(), holders.end(), [&](auto& h) {
      return candidates_.Draining(h) ||
             (h != p.primary() && (candidates_.UsablePs(job, h) == nullptr || links_.Cut(p.primary(), h, step_.now())));
    });
    // The ps to which it was to move may have been lost since.
    const auto may_get_one = [&](const NodeName& name) {
      return candidates_.UsablePs(job, name) != nullptr && !links_.Cut(p.primary(), name, step_.now()) &&
             std::find(holders.begin(), holders.end(), name) == holders.end();
    };
    const auto move = job.partitions.copies.moves.find(p.partition());
    const bool moves = move != job.partitions.copies.moves.end() && may_get_one(move->second);
    const auto shift = job.partitions.copies.shifts.find(p.partition());
    const bool shifts = shift != job.partitions.copies.shifts.end() && may_get_one(shift->second.second);
    if (static_cast<int>(holders.size() - leaving) >= wanted && !moves && !shifts) continue;
    if ((leaving > 0 || moves || shifts) && syncing >= kPartitionsMovingMax) continue;
    if (!std::exchange(loaded, true)) loads = candidates_.PsLoads(job);
    std::vector<std::string> hosts;
    for (const NodeName& holder : holders) {
      if (const ClusterNode* node = nodes_.Find(holder); node != nullptr && !node->leaving())
        hosts.push_back(node->machine.host);
    }
    std::vector<PsLoad> reachable = loads;
    std::erase_if(reachable, [&](const PsLoad& load) {
      return links_.Cut(p.primary(), load.name, step_.now()) || (job.finished() && !MayRecruit(load.name, recruited));
    });
    const NodeName target = moves ? move->second : shifts ? shift->second.second : PickCopy(holders, hosts, reachable);
    if (target.empty()) continue;
    v1::BackupPlacement& b = *p.add_backups();
    b.set_node(target);
    b.set_address(nodes_.Find(target)->address);
    job.partitions.copies.returned.erase({p.partition(), target});
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

// Acts on time, reports and wishes: records copies as in sync, carries out planned moves, removes superfluous copies.
void Copies::Repair(Job& job) {
  if (job.queued() || job.status.partitions_size() == 0 || (job.active() && job.partitions.hosting.awaiting_ready))
    return;
  if (!job.partitions.copies.repair_due && step_.now() < job.partitions.copies.balance_at) return;
  job.partitions.copies.repair_due = false;
  bool stored = !job.active() && EndFormers(job);
  bool raised = TakeLostAway(job, &stored);
  const std::set<std::pair<uint32_t, NodeName>> reported = std::exchange(job.partitions.copies.caught_up, {});
  for (const auto& [partition, name] : reported) {
    v1::BackupPlacement* b = FindBackup(*job.status.mutable_partitions(static_cast<int>(partition)), name);
    const ClusterNode* node = candidates_.UsablePs(job, name);
    if (b == nullptr || b->in_sync() || node == nullptr || job.partitions.copies.returned.contains({partition, name}))
      continue;
    b->set_in_sync(true);
    stored = true;
  }
  PlanMoves(job);
  const size_t there = candidates_.PsThere(job);
  const std::set<NodeName> leaving = candidates_.LeavingHolders(job);
  for (v1::PartitionPlacement& p : *job.status.mutable_partitions()) raised = Move(job, p, there) || raised;
  TellMoves(job);
  for (const NodeName& name : leaving) {
    if (!job.UsesPs(name)) jobs_.Tell(job, "ps \"%s\" holds nothing of the job any more: it may be stopped", name);
  }
  stored = Recruit(job) || stored;
  if (raised) return hosting_.NewGeneration(job);
  if (!stored) return;
  job.partitions.copies.repair_due = true;
  jobs_.Save(job);
  hosting_.HostAll(job, false);
}

// All moves of a drain, or towards balance, are one event of the job, unless they take long. The log has each of them.
void Copies::TellMoves(Job& job) {
  JobCopies& copies = job.partitions.copies;
  if (copies.moved.since == absl::InfiniteFuture()) return;
  const bool over = copies.moves.empty() && copies.shifts.empty() && candidates_.LeavingHolders(job).empty() &&
                    (copies.balanced != 0 || !job.running());
  if (!over && step_.now() - copies.moved.since < kMovesToldEvery) return;
  std::vector<std::string> parts;
  AddMoved(copies.moved.primaries, "partition", &parts);
  AddMoved(copies.moved.backups, "backup", &parts);
  copies.moved = {};
  const size_t more = parts.size() - std::min(parts.size(), kDegradedNamesMax);
  parts.resize(parts.size() - more);
  jobs_.NoteEvent(job, false,
                  absl::StrCat("moved: ", absl::StrJoin(parts, ", "),
                               more > 0 ? absl::StrFormat(", and between %d more pairs of ps", more) : ""));
}

// Whether its copies must be checked: a ps came back or was lost, or copies are not where they should be.
bool Copies::EndedAndDue(const Job& job) const {
  if (!job.finished() || job.status.partitions_size() == 0) return false;
  return job.partitions.copies.settle_due || job.partitions.copies.renew_due ||
         !job.partitions.copies.returned.empty() || job.partitions.copies.repair_due ||
         step_.now() >= job.partitions.copies.balance_at;
}

// Checks the copies of ended jobs, a few at a time, in turn: nothing waits for them, and there may be many.
void Copies::TendEnded() {
  std::vector<uint64_t> due;
  for (const auto& [id, job] : jobs_.all()) {
    if (EndedAndDue(job)) due.push_back(id);
  }
  std::rotate(due.begin(), std::upper_bound(due.begin(), due.end(), last_tended_), due.end());
  if (due.size() > kEndedPerTick) due.resize(kEndedPerTick);
  for (const uint64_t id : due) {
    last_tended_ = id;
    TendEndedJob(jobs_.At(id));
  }
}

void Copies::TendEndedJob(Job& job) {
  const bool settle = std::exchange(job.partitions.copies.settle_due, false);
  if ((settle || !job.partitions.copies.returned.empty()) && Settle(job)) return;
  if (std::exchange(job.partitions.copies.renew_due, false)) return hosting_.NewGeneration(job);
  if (settle) hosting_.HostAll(job, false);
  Repair(job);
}

// Carries out the planned change of one partition that is due: a promotion to replace a leaving primary, or the removal
// of a copy that is no longer needed. `there`: the number of ps that can have copies.
bool Copies::Move(Job& job, v1::PartitionPlacement& p, size_t there) {
  if (candidates_.UsablePs(job, p.primary()) == nullptr) return false;
  // Whether a disk is used is not settled yet: until then every copy is needed, and one that lost its memory serves
  // nothing.
  const auto unsettled = [&](const NodeName& holder) {
    return job.partitions.copies.returned.contains({p.partition(), holder});
  };
  if (unsettled(p.primary())) return false;
  const auto move = job.partitions.copies.moves.find(p.partition());
  const bool drained = candidates_.Draining(p.primary());
  if (drained || move != job.partitions.copies.moves.end()) {
    NodeName heir;
    for (const v1::BackupPlacement& b : p.backups()) {
      const ClusterNode* node = candidates_.UsablePs(job, b.node());
      if (!b.in_sync() || node == nullptr || !node->connected() || node->leaving() || unsettled(b.node())) continue;
      const bool wished = move != job.partitions.copies.moves.end() && move->second == b.node();
      if (wished || (drained && heir.empty())) heir = b.node();
    }
    if (heir.empty()) return false;
    step_.Log(OfJob(job.id()), "partition %d moves from ps \"%s\" to \"%s\"", p.partition(), p.primary(), heir);
    job.partitions.copies.NoteMoved(job.partitions.copies.moved.primaries, p.primary(), heir, step_.now());
    job.partitions.copies.moves.erase(p.partition());
    if (drained) job.partitions.copies.handed_over[p.partition()] = p.primary();
    job.partitions.hosting.SetVersion(p.partition(), 0);  // as in a promotion
    MakePrimary(job, p, heir, true);
    return true;
  }
  // A holder without a session may be dying: until that is settled, every copy is needed.
  for (const NodeName& holder : HoldersOf(p)) {
    const ClusterNode* node = nodes_.Find(holder);
    if (node == nullptr || !node->connected()) return false;
  }
  // Never fewer copies in sync than are wanted and possible.
  const size_t wanted = std::min<size_t>(1 + job.status.spec().backups(), std::max<size_t>(1, there));
  size_t in_sync = 1, staying = 1;
  for (const v1::BackupPlacement& b : p.backups()) {
    if (candidates_.Draining(b.node())) continue;
    ++staying;
    in_sync += b.in_sync();
  }
  if (in_sync < wanted) return false;
  if (const auto shift = job.partitions.copies.shifts.find(p.partition());
      shift != job.partitions.copies.shifts.end()) {
    const v1::BackupPlacement* to = FindBackup(p, shift->second.second);
    if (to == nullptr || !to->in_sync()) return false;
    const NodeName from = shift->second.first;
    step_.Log(OfJob(job.id()), "a backup of partition %d moves from ps \"%s\" to \"%s\"", p.partition(), from,
              to->node());
    job.partitions.copies.NoteMoved(job.partitions.copies.moved.backups, from, to->node(), step_.now());
    job.partitions.copies.shifts.erase(shift);
    return RemoveBackups(p, [&](const v1::BackupPlacement& b) { return b.node() == from; });
  }
  NoteDrainedBackups(job, p);
  return RemoveBackups(p, [&](const v1::BackupPlacement& b) {
    if (candidates_.Draining(b.node())) return true;
    if (staying <= wanted || (b.in_sync() && in_sync <= wanted)) return false;
    --staying;
    in_sync -= b.in_sync();
    return true;
  });
}

// Backups on draining ps are about to be removed: the newest of the others replace them.
void Copies::NoteDrainedBackups(Job& job, const v1::PartitionPlacement& p) {
  std::vector<NodeName> others;  // the newest last
  for (const v1::BackupPlacement& b : p.backups()) {
    if (b.in_sync() && !candidates_.Draining(b.node())) others.push_back(b.node());
  }
  // Too few ps are left for as many copies: none was replaced.
  if (static_cast<int>(others.size()) < job.status.spec().backups()) return;
  for (const v1::BackupPlacement& b : p.backups()) {
    if (!candidates_.Draining(b.node()) || !b.in_sync() || others.empty()) continue;
    const NodeName to = others.back();
    others.pop_back();
    const auto former = job.partitions.copies.handed_over.find(p.partition());
    if (former != job.partitions.copies.handed_over.end() && former->second == b.node()) continue;
    step_.Log(OfJob(job.id()), "a backup of partition %d moves from ps \"%s\" to \"%s\"", p.partition(), b.node(), to);
    job.partitions.copies.NoteMoved(job.partitions.copies.moved.backups, b.node(), to, step_.now());
  }
}

// If nothing else is going on, moves a primary to a ps with less data; if primaries are balanced, a backup.
void Copies::PlanMoves(Job& job) {
  std::erase_if(job.partitions.copies.moves, [&](const auto& move) {
    const ClusterNode* to = candidates_.UsablePs(job, move.second);
    return to == nullptr || to->leaving();
  });
  std::erase_if(job.partitions.copies.shifts, [&](const auto& shift) {
    v1::PartitionPlacement& p = *job.status.mutable_partitions(static_cast<int>(shift.first));
    const auto& [from, to] = shift.second;
    return FindBackup(p, from) == nullptr || p.primary() == to || candidates_.UsablePs(job, to) == nullptr ||
           candidates_.Draining(to) || candidates_.Draining(from) || links_.Cut(p.primary(), to, step_.now());
  });
  std::erase_if(job.partitions.copies.handed_over, [&](const auto& former) {
    v1::PartitionPlacement& p = *job.status.mutable_partitions(static_cast<int>(former.first));
    return !candidates_.Draining(former.second) || FindBackup(p, former.second) == nullptr;
  });
  if (step_.now() < job.partitions.copies.balance_at) return;
  job.partitions.copies.balance_at = step_.now() + kBalanceAfter;
  if (!job.running()) return;
  for (const v1::PartitionPlacement& p : job.status.partitions()) {
    for (const v1::BackupPlacement& b : p.backups()) {
      if (!b.in_sync()) return;
    }
    for (const NodeName& holder : HoldersOf(p)) {
      if (candidates_.Draining(holder) || candidates_.UsablePs(job, holder) == nullptr) return;
    }
  }
  const size_t seen = BalanceHash(job);
  if (job.partitions.copies.balanced == seen) return;
  std::vector<PsLoad> loads = candidates_.PsLoads(job);
  std::erase_if(
      loads, [&](const PsLoad& load) { return step_.now() - nodes_.Find(load.name)->lease.joined() < kBalanceAfter; });
  std::vector<uint64_t> bytes;
  std::vector<PartitionCopies> copies;
  for (const v1::PartitionPlacement& p : job.status.partitions()) {
    bytes.push_back(BytesOf(p));
    PartitionCopies& c = copies.emplace_back();
    c.primary = p.primary();
    for (const v1::BackupPlacement& b : p.backups()) c.backups.push_back(b.node());
  }
  while (static_cast<int>(job.partitions.copies.moves.size()) < kPartitionsMovingMax) {
    const std::optional<PrimaryMove> move = NextPrimaryMove(bytes, copies, loads);
    if (!move || job.partitions.copies.moves.contains(static_cast<uint32_t>(move->partition))) break;
    job.partitions.copies.moves[static_cast<uint32_t>(move->partition)] = move->to;
    copies[move->partition].primary = move->to;
  }
  while (job.partitions.copies.moves.empty() &&
         static_cast<int>(job.partitions.copies.shifts.size()) < kPartitionsMovingMax) {
    const std::optional<BackupMove> move = NextBackupMove(bytes, copies, loads);
    if (!move || job.partitions.copies.shifts.contains(static_cast<uint32_t>(move->partition))) break;
    job.partitions.copies.shifts[static_cast<uint32_t>(move->partition)] = {move->from, move->to};
    std::replace(copies[move->partition].backups.begin(), copies[move->partition].backups.end(), move->from, move->to);
  }
  const bool moves = !job.partitions.copies.moves.empty() || !job.partitions.copies.shifts.empty();
  job.partitions.copies.balanced = moves ? 0 : seen;
}

// Of all that the balance of a job depends on: its copies, and the ps that may have more of them.
size_t Copies::BalanceHash(const Job& job) const {
  size_t hash = 1;
  for (const ClusterNode* ps : nodes_.Connected(v1::PS)) {
    if (!candidates_.MayHold(job, *ps) || step_.now() - ps->lease.joined() < kBalanceAfter) continue;
    hash = absl::HashOf(hash, ps->name, ps->machine.host);
  }
  for (const v1::PartitionPlacement& p : job.status.partitions()) {
    hash = absl::HashOf(hash, p.primary());
    for (const v1::BackupPlacement& b : p.backups()) hash = absl::HashOf(hash, p.partition(), b.node());
  }
  return hash;
}

}  // namespace cairn
