// A primary that gets nothing across to a backup, while both of them are there for the coordinator: no connection lives
// between the two, or one does, and the backup's ps is busy. The backup is taken away from the primary's partitions
// (one generation for all of them, where any of its copies was in sync), and another ps takes its place where there is
// one. When the two are joined again: ps_links.h.
//
// What is known of links is kept in memory alone: after a restart of the coordinator the primaries say it again.
#include <utility>

#include "coordinator/cluster_core.h"
#include "coordinator/copies.h"

namespace cairn {

// What primaries said since the last look. True: copies in sync were taken away, and a new generation is due. `stored`
// is set where others were.
bool ClusterCore::TakeLostAway(Job& job, bool* stored) {
  std::set<std::pair<NodeName, NodeName>> lost;
  for (const auto& [copy, loss] : std::exchange(job.lost, {})) {
    const NodeName& primary = job.status.partitions(static_cast<int>(copy.first)).primary();
    // One that is left out has its own troubles: the copies of its backups are what the job goes on from.
    if (UsablePs(job, primary) == nullptr) continue;
    const ClusterNode* backup = members_.Find(copy.second);
    // One that is silent here, too, is no matter of the link: its lease decides. It is reported again.
    if (backup == nullptr || !backup->connected() || now_ - backup->last_heard > 2 * options_.heartbeat_interval)
      continue;
    if (!lost.insert({primary, copy.second}).second) continue;
    if (const auto news = links_.NoteLoss(primary, copy.second, loss, now_)) Warn("%s", *news);
  }
  if (lost.empty()) return false;
  bool raised = false;
  for (v1::PartitionPlacement& p : *job.status.mutable_partitions()) {
    *stored = RemoveBackups(p,
                            [&](const v1::BackupPlacement& b) {
                              if (!lost.contains({p.primary(), b.node()})) return false;
                              raised = raised || b.in_sync();
                              job.caught_up.erase({p.partition(), b.node()});
                              return true;
                            }) ||
              *stored;
  }
  return raised;
}

std::string ClusterCore::LinksText(const Job& job) const {
  if (job.queued()) return "";
  return links_.Text(job.status, [&](const NodeName& name) {
    const ClusterNode* node = members_.Find(name);
    return node != nullptr && node->connected();
  });
}

}  // namespace cairn
