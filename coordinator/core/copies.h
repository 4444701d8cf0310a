// Copies: which copy of a partition serves, and which may take its place; lost ones are replaced, drained ps are
// emptied, ps that joined take their share. All of it while training goes on.
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
//      falls back to a version that all its partitions can go back to (rollback.h).
//   4. A promotion leaves the copies behind that cannot be reached at that moment: the old primary, and lost backups in
//      sync. A new primary has no requests of its own before the workers are told of its generation, so that until then
//      nothing is acknowledged without them: they are kept as former copies, which may be promoted should the new
//      primary be lost as well. What ends them is stored before the assignments go out (EndFormers). Where a primary
//      stays, and a backup is lost or taken away, there is no such time: the primary answers what waited for that
//      backup as soon as it hears of the generation.
//   5. A primary that cannot reach a backup says so, and goes on waiting for it. The backup is taken away by rule 2,
//      and is then like any other ps (ps_links.h). Only the primary of the present generation is heard, never the
//      backup: of two ends of a cut link that both are primaries, each keeps its own partitions.
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
  Copies(const Ground& ground, Endings& endings, Restores& restores)
      : Component(ground), endings_(endings), restores_(restores) {}

  // ---- losses ----
  // The ps was restarted: of its copies only what its disk holds is left.
  void NoteReturned(Job& job, const ClusterNode& node, const v1::HeldPartitions* held);
  // Promotes, takes out and demotes where copies were lost. True: a new generation was begun, or the job ended.
  bool Settle(Job& job);
  // The workers are about to be told of the generation: from now on updates are acknowledged without the former copies.
  // Those that are there go on as backups that have to catch up. True: there were some.
  bool EndFormers(Job& job);
  // Why partitions are not served; empty: they are.
  std::string WaitText(const Job& job) const;

  // ---- repair ----
  void OnBackupReport(const ClusterNode& node, const v1::BackupReport& report);
  // What time, reports and wishes bring: copies in sync are noted, planned moves are made, superfluous copies go.
  void Repair(Job& job);
  // The copies of an ended job are to be looked at: a ps came back or was lost, or they are not where they should be.
  bool EndedAndDue(const Job& job) const;
  // A few of these at a time, in turn: nobody waits for them, and there may be many.
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
  void PlanMoves(Job& job);
  bool Move(Job& job, v1::PartitionPlacement& p, size_t there);

  Endings& endings_;
  Restores& restores_;
  PsLinks links_;
  uint64_t last_tended_ = 0;  // the ended job whose turn was last
};

}  // namespace cairn
