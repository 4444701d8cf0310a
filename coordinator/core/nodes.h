// Nodes: the nodes of the cluster, and their stored state.
//
// Not thread-safe; one core owns it. Invariants:
//   1. A ps of another cluster is refused.
//   2. The incarnation of a ps is not stored while the role of its copies after a restart is undecided (Unsettled).
//   3. The nodes are stored together. In a large cluster the time that this takes is bounded: what may wait (SaveSoon)
//      is stored a few times a second.
//   4. A refusal is told when its reason is another one than before; kRefusalsToldMax at once, then one in each
//      kRefusalsTime, with how many were left out.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"
#include "coordinator/core/events.h"
#include "coordinator/core/job_table.h"
#include "coordinator/core/limits.h"
#include "coordinator/core/membership.h"
#include "coordinator/core/options.h"
#include "coordinator/core/step_context.h"

namespace cairn {

class Nodes {
 public:
  // incarnation: of this coordinator. step and jobs outlive it.
  Nodes(const CoordinatorOptions& options, uint64_t incarnation, const StoredState& stored, StepContext& step,
        JobTable& jobs);

  // Closes the session of a node that is refused, and logs the reason once. Errors: as Membership::Admit.
  absl::StatusOr<Membership::Admission> Admit(SessionToken session, const v1::Hello& hello);
  // Of a node that did not come as far as Admit.
  void OnRefused(const NodeRefused& event);
  void Welcome(const ClusterNode& node);
  ClusterNode* Heard(SessionToken session) { return members_.Heard(session, step_.now()); }
  ClusterNode* Closed(SessionToken session) { return members_.Closed(session, step_.now()); }
  std::vector<Membership::Death> Expire() { return members_.Expire(step_.now()); }

  ClusterNode* Find(const NodeName& name) { return members_.Find(name); }
  const ClusterNode* Find(const NodeName& name) const { return members_.Find(name); }
  const std::map<NodeName, ClusterNode>& all() const { return members_.nodes(); }
  uint64_t changes() const { return members_.changes(); }  // grows whenever a node comes, goes, or is another one
  std::vector<ClusterNode*> Connected(v1::Role role) { return members_.Connected(role); }  // by name
  // Whether nodes known before the coordinator's start may still come back.
  bool Settling() const { return members_.Settling(step_.now()); }
  std::string FaultsText() const;  // names ps whose store failed

  void Save();
  // For a node of which no copy depends: a coordinator that does not find it stored takes it for one that was started
  // again. Stored by a later Tick, or with the next Save; at once in a cluster of usual size.
  void SaveSoon();
  void Tick();
  // At the end of a Step that may have settled copies.
  void SaveIfSettled();

  v1::NodeStatus StatusOf(const NodeName& name) const;  // of a known node
  v1::ListNodesResponse List() const;

 private:
  // A node that was refused, as shown; from: its machine, if that is known.
  struct Refused {
    std::string who, from;
    auto operator<=>(const Refused&) const = default;
  };
  absl::Status CheckCluster(const v1::Hello& hello) const;
  void NoteRefusal(const Refused& node, std::string why);
  void AllowRefusals();
  std::set<NodeName> Unsettled() const;
  v1::NodeStatus StatusWithoutPartitions(const NodeName& name) const;

  const CoordinatorOptions options_;
  const uint64_t incarnation_;
  const uint64_t cluster_id_;
  StepContext& step_;
  JobTable& jobs_;
  bool cluster_id_stored_;
  Membership members_;
  bool save_due_ = false;  // SaveSoon was put off
  absl::Time saved_at_ = absl::InfinitePast();
  std::set<NodeName> unsettled_stored_;  // as the stored state of the cluster has it
  struct Refusals {
    std::map<Refused, std::string> known;     // the reason that was told
    int left = kRefusalsToldMax;              // so many may be told now
    absl::Time since = absl::InfinitePast();  // one more may be kRefusalsTime after this
    int left_out = 0;                         // since then
  };
  Refusals refusals_;
};

}  // namespace cairn
