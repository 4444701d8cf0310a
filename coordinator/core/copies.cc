#include "coordinator/core/copies.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/limits.h"
#include "common/base/text.h"
#include "common/model/fault_check.h"
#include "coordinator/core/limits.h"
#include "coordinator/core/partition_copies.h"

namespace cairn {
namespace {

// A ps whose store has failed ends within this time of its report, and what it has in memory with it. One that is still
// there later had a fault that it survives: data of some job that cannot be read.
constexpr absl::Duration kFailedPsEndsWithin = absl::Seconds(1);

bool Ending(const ClusterNode& ps, absl::Time now) {
  return !ps.fault.empty() && now - ps.failed_at < kFailedPsEndsWithin;
}

std::vector<NodeName> PrimariesOf(const Job& job) {
  std::vector<NodeName> names;
  for (const v1::PartitionPlacement& p : job.status.partitions()) names.push_back(p.primary());
  return names;
}

}  // namespace

// ---- losses ----

// The ps was restarted: only what its disk holds is left of its copies.
void Copies::NoteReturned(Job& job, const ClusterNode& node, const v1::HeldPartitions* held) {
  for (const v1::PartitionPlacement& p : job.status.partitions()) {
    const std::vector<NodeName> holders = HoldersOf(p);
    if (std::find(holders.begin(), holders.end(), node.name) == holders.end()) continue;
    JobCopies::Returned& returned = job.partitions.copies.returned[{p.partition(), node.name}] = {};
    returned.since = step_.now();
    if (held == nullptr) continue;
    for (const v1::HeldPartition& h : held->partitions()) {
      if (h.partition() == p.partition()) returned.held = h;
    }
  }
}

// Promotes, removes and demotes copies after losses. Returns true if a new generation was begun, or the job ended.
bool Copies::Settle(Job& job) {
  bool changed = false, lost = false;
  const std::vector<NodeName> before = PrimariesOf(job);
  std::set<NodeName> back;
  for (v1::PartitionPlacement& p : *job.status.mutable_partitions()) {
    const NodeName primary = p.primary();
    const int in_sync = BackupsInSync(p);
    const bool came_back = job.partitions.copies.returned.contains({p.partition(), primary});
    const SettleResult result = SettlePartition(job, p);
    if (result == SettleResult::kLost) return true;
    if (came_back && result == SettleResult::kChanged && p.primary() == primary) back.insert(primary);
    changed = changed || result == SettleResult::kChanged;
    lost = lost || p.primary() != primary || BackupsInSync(p) < in_sync;
  }
  if (!changed) return false;
  // Not of a copy that was still being filled.
  if (lost || !back.empty()) job.partitions.copy_watch.NoteLoss(step_.now());
  for (const NodeName& name : back)
    jobs_.Tell(job, "ps \"%s\" is back: its partitions are recovered from its disk", name);
  TellPromotions(job, before);
  Recruit(job);
  hosting_.NewGeneration(job);
  return true;
}

Copies::SettleResult Copies::SettlePartition(Job& job, v1::PartitionPlacement& p) {
  const auto returned = [&](const NodeName& name) {
    return job.partitions.copies.returned.contains({p.partition(), name});
  };
  const ClusterNode* primary = candidates_.UsablePs(job, p.primary());
  if (primary != nullptr && !returned(p.primary())) {
    // A primary without a session may be dead already. The state on the disks of its in-sync backups may be needed
    // then, so they stay unchanged until that is known.
    if (!primary->connected()) return SettleResult::kSame;
    bool changed =
        RemoveBackups(p, [&](const auto& b) { return !b.former() && candidates_.UsablePs(job, b.node()) == nullptr; });
    for (v1::BackupPlacement& b : *p.mutable_backups()) {
      if (!returned(b.node())) continue;
      b.set_former(b.former() && StaysComplete(job, p.partition(), b.node()));
      job.partitions.copies.returned.erase({p.partition(), b.node()});
      b.set_in_sync(false);
      changed = true;
    }
    return changed ? SettleResult::kChanged : SettleResult::kSame;
  }
  NodeName heir;
  for (const v1::BackupPlacement& b : p.backups()) {
    const ClusterNode* node = candidates_.UsablePs(job, b.node());
    if (!Complete(b) || node == nullptr || !node->connected() || returned(b.node())) continue;
    // Rule 6. Tick settles the job again while a copy that came back waits.
    if (returned(p.primary()) && Ending(*node, step_.now())) continue;
    if (heir.empty() || (nodes_.Find(heir)->leaving() && !node->leaving())) heir = b.node();
  }
  if (heir.empty()) return SettleFromDisk(job, p);
  // It has every acknowledged update. The last primary may have reported one more update, which was not confirmed.
  job.partitions.hosting.SetVersion(p.partition(), 0);
  MakePrimary(job, p, heir);
  return SettleResult::kChanged;
}

// The lowest version that a copy with every acknowledged update can have; 0 if that is not known. A ps reports what it
// has applied, but not all of that was acknowledged. In a synchronous partition all but the last update was: the one
// after it is computed from weights that were sent to the workers. In an asynchronous one all but one update per
// replica was, since each replica waits for the answer. At the end of a job there is no such update.
uint64_t Copies::LeastVersion(const Job& job, uint32_t partition) const {
  if (job.best.restoring) return 0;  // some may already be filled
  if (IsComplete(job.state()) && partition < job.end.versions.size()) return job.end.versions[partition];
  if (!job.active() || !LogsBeforeReply(job.status.spec().durability())) return 0;
  if (job.finalizing()) {  // everything is acknowledged, and no further update is sent
    if (partition < job.end.versions.size()) return job.end.versions[partition];
    if (job.synchronous() && !job.best.restored) return static_cast<uint64_t>(job.status.total_steps());
  }
  const uint64_t unsettled = job.synchronous() ? 1 : static_cast<uint64_t>(std::max(1, job.status.spec().replicas()));
  uint64_t least =
      job.partitions.hosting.versions[partition] - std::min(job.partitions.hosting.versions[partition], unsettled);
  // A report may be ahead of the update by what is in flight. The best epoch's weights are those of an earlier step.
  if (job.synchronous() && job.progress && !job.best.restored)
    least = std::max<uint64_t>(least, std::max<int64_t>(0, job.progress->step() - 2));
  return least;
}

// No in-sync copy has kept its memory.
Copies::SettleResult Copies::SettleFromDisk(Job& job, v1::PartitionPlacement& p) {
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
    const ClusterNode* node = candidates_.UsablePs(job, name);
    const auto it = job.partitions.copies.returned.find({p.partition(), name});
    if (node == nullptr || !node->connected() || it == job.partitions.copies.returned.end()) {
      away = true;
    } else if (!it->second.held) {
      lost = absl::StrFormat(
          "ps \"%s\" came back without partition %d of this job: its data directory was emptied or replaced, or is "
          "damaged (see its log), or was started under another name, and there is no other copy",
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
  // Another copy may have more updates.
  if (!logs && away && step_.now() - since < options_.copies_grace) return SettleResult::kSame;
  job.partitions.hosting.SetVersion(p.partition(), best->version());
  job.partitions.rollback.NeedsCheck();
  if (best_name == p.primary()) {
    job.partitions.copies.returned.erase({p.partition(), best_name});
    for (v1::BackupPlacement& b : *p.mutable_backups()) {
      b.set_in_sync(false);
      b.set_former(false);
    }
    SettlePartition(job, p);  // settles its backups
  } else {
    MakePrimary(job, p, best_name);
  }
  return SettleResult::kChanged;
}

void Copies::LoseWeights(Job& job, const std::string& why) {
  if (restores_.RestoreInstead(job, why)) return;
  if (job.active()) return endings_.End(job, v1::FAILED, absl::StrCat(why, "; submit the job again"));
  const std::string lost = absl::StrCat("its weights are lost: ", why, "; submit the job again");
  jobs_.TellWarning(job, "%s", lost);
  job.status.clear_partitions();
  job.partitions.copies.returned.clear();
  job.status.set_reason(absl::StrCat(job.status.reason(), job.status.reason().empty() ? "" : "; ", lost));
  jobs_.Save(job);
  hosting_.DropFromNodes(job.id(), v1::PS);
}

// Whether a copy that had every acknowledged update still has them, in memory or on its disk. The disk may have been
// replaced.
bool Copies::StaysComplete(const Job& job, uint32_t partition, const NodeName& name) const {
  const ClusterNode* node = nodes_.Find(name);
  if (node != nullptr && candidates_.LeftOut(job, *node)) return false;
  const auto returned = job.partitions.copies.returned.find({partition, name});
  if (returned == job.partitions.copies.returned.end()) return true;
  const auto& held = returned->second.held;
  return LogsBeforeReply(job.status.spec().durability()) && held && held->version() >= LeastVersion(job, partition);
}

// The other backups, and the old primary if it is alive, follow the new primary from now on, beginning with its image.
// Copies with every acknowledged update stay in sync, including the old primary if it hands over as `planned`: if the
// new primary dies before it has brought them up to date, nothing is lost. A copy with every acknowledged update that
// cannot follow now becomes a former copy (rule 4).
void Copies::MakePrimary(Job& job, v1::PartitionPlacement& p, const NodeName& heir, bool planned) {
  const NodeName old = p.primary();
  const auto returned = [&](const NodeName& name) {
    return job.partitions.copies.returned.contains({p.partition(), name});
  };
  const auto there = [&](const NodeName& name) {
    const ClusterNode* node = candidates_.UsablePs(job, name);
    return node != nullptr && node->connected();
  };
  RemoveBackups(p, [&](const auto& b) { return b.node() == heir; });
  for (v1::BackupPlacement& b : *p.mutable_backups()) {
    const bool stays = Complete(b) && StaysComplete(job, p.partition(), b.node());
    b.set_in_sync(b.in_sync() && candidates_.UsablePs(job, b.node()) != nullptr && !returned(b.node()));
    b.set_former(stays && !b.in_sync());
  }
  RemoveBackups(p, [&](const auto& b) { return !b.former() && candidates_.UsablePs(job, b.node()) == nullptr; });
  const bool stays = StaysComplete(job, p.partition(), old);
  if (there(old) || stays) {
    v1::BackupPlacement& b = *p.add_backups();
    b.set_node(old);
    b.set_address(there(old) ? nodes_.Find(old)->address : p.primary_address());
    b.set_in_sync(planned && there(old) && !returned(old));
    b.set_former(stays && !b.in_sync());
  }
  p.set_primary(heir);
  p.set_primary_address(nodes_.Find(heir)->address);
  job.partitions.copies.returned.erase(job.partitions.copies.returned.lower_bound({p.partition(), NodeName()}),
                                       job.partitions.copies.returned.lower_bound({p.partition() + 1, NodeName()}));
}

// The workers are about to learn of the generation: from now on updates are acknowledged without the former copies.
// Those that are present become backups that have to catch up. Returns true if there were any.
bool Copies::EndFormers(Job& job) {
  bool changed = false;
  for (v1::PartitionPlacement& p : *job.status.mutable_partitions()) {
    RemoveBackups(p, [&](const v1::BackupPlacement& b) {
      if (!b.former()) return false;
      changed = true;
      return candidates_.UsablePs(job, b.node()) == nullptr || links_.Cut(p.primary(), b.node(), step_.now());
    });
    for (v1::BackupPlacement& b : *p.mutable_backups()) b.set_former(false);
  }
  return changed;
}

// Logs that primaries were lost since `before`, and were replaced.
void Copies::TellPromotions(Job& job, const std::vector<NodeName>& before) {
  std::map<NodeName, std::map<NodeName, int>> heirs;
  for (size_t i = 0; i < before.size(); ++i) {
    const NodeName& now = job.status.partitions(static_cast<int>(i)).primary();
    if (now != before[i]) ++heirs[before[i]][now];
  }
  for (const auto& [old, to] : heirs) {
    std::vector<std::string> parts;
    for (const auto& [name, count] : to)
      parts.push_back(absl::StrFormat("%s by ps \"%s\"", CountText(count, "partition"), name));
    const std::string trouble = candidates_.TroubleText(job, old);
    const std::string text = absl::StrFormat("ps \"%s\" %s; served from now on: %s", old,
                                             trouble.empty() ? "was restarted" : trouble, absl::StrJoin(parts, ", "));
    if (job.finished()) {  // one log line covers all of them (Reconciler::OnPsLost)
      jobs_.NoteEvent(job, true, text);
    } else {
      jobs_.TellText(job, true, text);
    }
  }
}

bool Copies::TakeLostAway(Job& job, bool* stored) {
  std::set<std::pair<NodeName, NodeName>> lost;
  for (const auto& [copy, loss] : std::exchange(job.partitions.copies.lost, {})) {
    const NodeName& primary = job.status.partitions(static_cast<int>(copy.first)).primary();
    // An excluded ps has its own problems; the job continues from the copies of its backups.
    if (candidates_.UsablePs(job, primary) == nullptr) continue;
    const ClusterNode* backup = nodes_.Find(copy.second);
    // If the backup is silent to the coordinator too, the link is not the cause: its lease decides. The loss is
    // reported again.
    if (backup == nullptr || !backup->connected() ||
        step_.now() - backup->lease.last_heard() > 2 * options_.heartbeat_interval)
      continue;
    if (!lost.insert({primary, copy.second}).second) continue;
    const auto news = links_.NoteLoss(primary, copy.second, loss, step_.now());
    if (news) step_.Warn(OfNode(*nodes_.Find(primary)), "%s", *news);
  }
  if (lost.empty()) return false;
  int in_sync = 0;
  std::set<NodeName> away;
  for (v1::PartitionPlacement& p : *job.status.mutable_partitions()) {
    *stored = RemoveBackups(p,
                            [&](const v1::BackupPlacement& b) {
                              if (!lost.contains({p.primary(), b.node()})) return false;
                              in_sync += b.in_sync();
                              if (b.in_sync()) away.insert(b.node());
                              job.partitions.copies.caught_up.erase({p.partition(), b.node()});
                              return true;
                            }) ||
              *stored;
  }
  if (in_sync > 0) TellLostBackups(job, in_sync, away);
  return in_sync > 0;
}

// One event, however many there are: which ps cannot reach which is an event of the ps.
void Copies::TellLostBackups(Job& job, int backups, const std::set<NodeName>& away) {
  job.partitions.copy_watch.NoteLoss(step_.now());
  std::vector<NodeName> names(away.begin(), away.end());
  const size_t more = names.size() - std::min(names.size(), kNamesInReasonMax);
  names.resize(names.size() - more);
  const std::string text =
      absl::StrFormat("%s on ps \"%s\"%s %s behind: what serves the partitions cannot reach them",
                      CountText(backups, "backup"), absl::StrJoin(names, "\", \""),
                      more > 0 ? absl::StrFormat(" and %d more", more) : "", Verb(backups, "falls", "fall"));
  if (job.finished()) return jobs_.NoteEvent(job, true, text);
  jobs_.TellText(job, true, text);
}

std::string Copies::LinksText(const Job& job) const {
  if (job.queued()) return "";
  return links_.Text(job.status, [&](const NodeName& name) {
    const ClusterNode* node = nodes_.Find(name);
    return node != nullptr && node->connected();
  });
}

// ---- reasons ----

// Why partitions are not served; empty if they are.
std::string Copies::WaitText(const Job& job) const {
  int waiting = 0;
  std::set<NodeName> away, back;
  for (const v1::PartitionPlacement& p : job.status.partitions()) {
    const auto& returned = job.partitions.copies.returned;
    if (candidates_.UsablePs(job, p.primary()) != nullptr &&
        (returned.empty() || !returned.contains({p.partition(), p.primary()})))
      continue;
    ++waiting;
    for (const NodeName& name : HoldersOf(p)) {
      v1::PartitionPlacement copy = p;
      if (name != p.primary() && !Complete(*FindBackup(copy, name))) continue;
      (job.partitions.copies.returned.contains({p.partition(), name}) ? back : away).insert(name);
    }
  }
  if (waiting == 0) return "";
  if (away.size() == 1 && back.empty()) {
    return absl::StrFormat("waits for ps \"%s\" to come back (its data directory holds %s); restart it", *away.begin(),
                           CountText(job.PartitionsOn(*away.begin()), "partition"));
  }
  std::vector<NodeName> names(away.begin(), away.end());
  const size_t more = names.size() - std::min(names.size(), kNamesInReasonMax);
  names.resize(names.size() - more);
  std::string text = absl::StrFormat(
      "waits for ps \"%s\"%s to come back: of %s there is no other copy that is up to date; restart them",
      absl::StrJoin(names, "\", \""), more > 0 ? absl::StrFormat(" and %d more", more) : "",
      CountText(waiting, "partition"));
  if (!back.empty()) absl::StrAppend(&text, " (\"", absl::StrJoin(back, "\", \""), "\" lost its memory)");
  return text;
}

}  // namespace cairn
