// What a user is told of a job as it happens: JobStatus.events, and the same sentences in the log.
//
// What happens to many replicas or partitions at once is one event: they are bounded, and a reader wants to know who
// was lost, not each part that it had.
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/cluster_core.h"

namespace cairn {

void ClusterCore::TellText(Job& job, bool warning, const std::string& text) {
  Emit(LogLine{warning, absl::StrCat("job ", job.id(), ": ", text)});
  AddEvent(job, now_, warning, text);
  events_unstored_.insert(job.id());
}

// Why work is taken from a node; empty: it is there, and nothing is wrong with it.
std::string ClusterCore::TroubleText(const Job& job, const NodeName& name) const {
  const ClusterNode* node = members_.Find(name);
  if (node == nullptr || !node->alive) return "is gone";
  if (LeftOut(job, *node)) return "cannot work for the job";
  if (!node->fault.empty()) return "has failed";
  return node->draining ? "is drained" : "";
}

// `moves`: replicas, by who had them and by who has them now. why: of workers that nothing is wrong with.
void ClusterCore::TellMoves(Job& job, const ReplicaMoves& moves, const std::string& why) {
  for (const auto& [from, to] : moves) {
    std::vector<std::string> parts;
    for (const auto& [name, replicas] : to) {
      const std::string which = absl::StrCat("replicas ", ReplicaListText(replicas));
      parts.push_back(name.empty() ? which + " wait for another"
                                   : absl::StrFormat("%s go to worker \"%s\"", which, name));
    }
    const std::string what = absl::StrJoin(parts, ", ");
    const std::string trouble = from.empty() ? "" : TroubleText(job, from);
    if (!trouble.empty()) {
      TellText(job, trouble != "is drained", absl::StrFormat("worker \"%s\" %s; %s", from, trouble, what));
    } else if (from.empty()) {
      Tell(job, "%s", what);
    } else {
      Tell(job, "%s; its %s", why.empty() ? absl::StrFormat("worker \"%s\" shares with others", from) : why, what);
    }
  }
}

std::vector<NodeName> ClusterCore::PrimariesOf(const Job& job) {
  std::vector<NodeName> names;
  for (const v1::PartitionPlacement& p : job.status.partitions()) names.push_back(p.primary());
  return names;
}

// Primaries were lost since `before`, and others took their place.
void ClusterCore::TellPromotions(Job& job, const std::vector<NodeName>& before) {
  std::map<NodeName, std::map<NodeName, int>> heirs;
  for (size_t i = 0; i < before.size(); ++i) {
    const NodeName& now = job.status.partitions(static_cast<int>(i)).primary();
    if (now != before[i]) ++heirs[before[i]][now];
  }
  for (const auto& [old, to] : heirs) {
    std::vector<std::string> parts;
    for (const auto& [name, count] : to) parts.push_back(absl::StrFormat("%d partitions by ps \"%s\"", count, name));
    const std::string trouble = TroubleText(job, old);
    TellWarning(job, "ps \"%s\" %s; served from now on: %s", old, trouble.empty() ? "was started anew" : trouble,
                absl::StrJoin(parts, ", "));
  }
}

// Those that hold partitions of the job, and are to hold none.
std::set<NodeName> ClusterCore::LeavingHolders(const Job& job) const {
  std::set<NodeName> leaving;
  for (const auto& [name, node] : members_.nodes()) {
    if (node.role == v1::PS && node.leaving() && job.UsesPs(name)) leaving.insert(name);
  }
  return leaving;
}

// Its partitions are about to move, or its replicas; SetOwners tells of these.
void ClusterCore::TellDrain(const ClusterNode& node) {
  for (auto& [id, job] : jobs_) {
    const int partitions = job.active() ? job.PartitionsOn(node.name) : 0;
    if (partitions == 0) continue;
    Tell(job, "ps \"%s\" %s", node.name,
         node.draining ? absl::StrFormat("is drained: its copies of %d partitions move to others", partitions)
                       : "is not drained any more");
  }
}

}  // namespace cairn
