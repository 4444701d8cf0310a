// Copies: which copy of a partition serves, and which may take its place. Lost copies are replaced, drained ps are
// emptied, and new ps get their share, all while training continues.
//
// A copy is in sync when it has every acknowledged update; the flag is stored before the primary is told that the copy
// is in sync. Rules:
//   1. Only a copy that has every acknowledged update is made the primary: one in sync, or a former one (rule 4).
//      No primary acknowledges without its copies in sync, so a promotion is safe while the old primary still runs: the
//      new one refuses its frames by their generation.
//   2. A copy whose process ended is not in sync until the primary reports that it has caught up in the present
//      generation. Removing a copy in sync takes a new generation; other copies come and go within one.
//   3. Where no copy in sync is alive with its memory, a copy that comes back with its disk is used: in a job that logs
//      before the reply it has every acknowledged update; else the best of the returned copies is used, and a
//      synchronous job falls back to a version that all its partitions can reach (rollback.h).
//   4. A promotion excludes unreachable copies: the old primary, and lost backups in sync. A new primary gets no
//      requests before the workers are told of its generation, so until then nothing is acknowledged without those
//      copies: they are kept as former copies, and one may be promoted if the new primary is lost as well. Their end is
//      stored before the assignments go out (EndFormers).
//      Where the primary stays and a backup is lost or removed, there is no such interval: the primary answers the
//      requests that waited for that backup as soon as it learns of the generation.
//   5. A primary that cannot reach a backup reports it, and keeps waiting for it. The backup is removed by rule 2,
//      and is then like any other ps (ps_links.h). Only the primary of the present generation is believed, never the
//      backup: if both ends of a cut link are primaries, each keeps its own partitions.
//   6. A ps whose store has failed cannot serve: its process is about to end, and of its copies the disk alone remains.
//      Where the primary has come back with its disk, such a ps is not promoted: with the promotion the primary's disk
//      would be given up, which may have more than the heir's.
//
// Not thread-safe; one core owns it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "coordinator/core/component.h"
#include "coordinator/core/endings.h"
#include "coordinator/core/ps_links.h"
#include "coordinator/core/restores.h"

namespace cairn {

class Copies : Component {
 public:
  Copies(Ground& ground, Endings& endings, Restores& restores)
      : Component(ground), endings_(endings), restores_(restores) {}

  // ---- losses ----
  // The ps was restarted: of its copies only those on its disk are left.
  void NoteReturned(Job& job, const ClusterNode& node, const v1::HeldPartitions* held);
  // Promotes, removes and demotes copies after a loss. True: a new generation was begun, or the job ended.
  bool Settle(Job& job);
  // The workers are about to be told of the generation: from now on updates are acknowledged without the former copies.
  // Those still alive become backups that have to catch up. True: there were former copies.
  bool EndFormers(Job& job);
  // Why partitions are not served; empty: they are.
  std::string WaitText(const Job& job) const;

  // ---- repair ----
  void OnBackupReport(const ClusterNode& node, const v1::BackupReport& report);
  // Notes copies that have come in sync, makes planned moves, adds missing copies and removes superfluous ones.
  void Repair(Job& job);
  // Whether the copies of an ended job are due: a ps came back or was lost, or a copy is not where it should be.
  bool EndedAndDue(const Job& job) const;
  // Settles and repairs a few ended jobs at a time, in turn: nothing waits for them, and there may be many.
  void TendEnded();
  void TendEndedJob(Job& job);

  // ---- links ----
  void ForgetLinksOf(const NodeName& ps) { links_.ForgetPs(ps); }
  void ForgetOldLinks() { links_.ForgetOld(step_.now()); }
  std::string LinksText(const Job& job) const;

 private:
  enum class SettleResult { kSame, kChanged, kLost };
  SettleResult SettlePartition(Job& job, v1::PartitionPlacement& p);
  SettleResult SettleFromDisk(Job& job, v1::PartitionPlacement& p);
  uint64_t LeastVersion(const Job& job, uint32_t partition) const;
  bool StaysComplete(const Job& job, uint32_t partition, const NodeName& name) const;
  void LoseWeights(Job& job, const std::string& why);
  void MakePrimary(Job& job, v1::PartitionPlacement& p, const NodeName& heir, bool planned = false);
  void TellPromotions(Job& job, const std::vector<NodeName>& before);

  bool MayRecruit(const NodeName& ps, const std::map<NodeName, int>& more) const;
  bool Recruit(Job& job);
  bool TakeLostAway(Job& job, bool* stored);
  void TellLostBackups(Job& job, int backups, const std::set<NodeName>& away);
  size_t BalanceHash(const Job& job) const;
  void PlanMoves(Job& job);
  bool Move(Job& job, v1::PartitionPlacement& p, size_t there);
  void NoteDrainedBackups(Job& job, const v1::PartitionPlacement& p);
  void TellMoves(Job& job);

  Endings& endings_;
  Restores& restores_;
  PsLinks links_;
  uint64_t last_tended_ = 0;  // the ended job whose turn was last
};

}  // namespace cairn
