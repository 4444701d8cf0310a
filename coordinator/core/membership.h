// Membership: the nodes of the cluster, their sessions and leases (docs/architecture.md#coordinators).
//
// Not thread-safe; used by ClusterCore. Invariants:
//   1. At most one session belongs to a node, and a session to at most one node.
//   2. A node is alive from its Hello until it has said nothing for `lease`, or has had no session for reopen_grace
//      (NodeLease). Nodes of the stored state start alive without a session: they have start_grace to come back.
//   3. At most kNodesMax nodes are alive, and at most dead_nodes_kept.most
//      dead ones are remembered, for dead_nodes_kept.longest.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"
#include "cairn/v1/storage.pb.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "coordinator/core/cluster_node.h"
#include "coordinator/core/events.h"
#include "coordinator/core/options.h"

namespace cairn {

class Membership {
 public:
  Membership(const CoordinatorOptions& options, const v1::StoredCluster& stored, absl::Time now);

  struct Admission {
    ClusterNode* node = nullptr;
    SessionToken superseded;    // an older session of the same process, to be closed; 0: none
    bool was_alive = false;     // false: new, or it had been declared dead
    bool same_process = false;  // the node was known, and its incarnation is unchanged
    bool address_changed = false;
  };
  // Errors: INVALID_ARGUMENT (names the field), ALREADY_EXISTS, RESOURCE_EXHAUSTED.
  absl::StatusOr<Admission> Admit(SessionToken session, const v1::Hello& hello, absl::Time now);

  // Also renews the lease. nullptr: the session has no node (it was superseded, or its node was declared dead).
  ClusterNode* Heard(SessionToken session, absl::Time now);
  // nullptr as above.
  ClusterNode* Closed(SessionToken session, absl::Time now);

  struct Death {
    ClusterNode* node = nullptr;
    SessionToken session;  // still open, to be closed; 0: none
  };
  // Nodes whose lease or grace ended by `now`; each death is returned once.
  std::vector<Death> Expire(absl::Time now);

  ClusterNode* Find(const NodeName& name);
  const ClusterNode* Find(const NodeName& name) const;
  const std::map<NodeName, ClusterNode>& nodes() const { return nodes_; }
  // With an open session, by name.
  std::vector<ClusterNode*> Connected(v1::Role role);
  // Whether nodes of the stored state may still come back.
  bool Settling(absl::Time now) const;
  std::vector<v1::NodeStatus> List() const;  // of StatusOfNode
  void Save(v1::StoredCluster& stored) const;

 private:
  void Forget(absl::Time now);
  absl::Status CheckInterface(const v1::Hello& hello) const;

  const CoordinatorOptions options_;
  std::map<NodeName, ClusterNode> nodes_;
  std::map<SessionToken, NodeName> sessions_;
};

// A node's name: letters, digits, '-', '_' and '.', 1 to 63 characters. INVALID_ARGUMENT names the field that is wrong.
absl::Status CheckHello(const v1::Hello& hello);

}  // namespace cairn
