// Membership: the nodes of the cluster, their sessions and leases (docs/architecture.md#coordinators).
//
// Not thread-safe; used by ClusterCore. Invariants:
//   1. At most one session belongs to a node, and a session to at most one node.
//   2. A node is alive from its Hello until it has said nothing for `lease`, or has had no session for reopen_grace
//      (NodeLease). Nodes of the stored state start alive without a session: they have start_grace to come back.
//   3. At most kNodesMax nodes are alive, and at most dead_nodes_kept.most
//      dead ones are remembered, for dead_nodes_kept.longest.
//   4. A message, a Hello and a query take no time that grows with the cluster; Expire alone looks at every node.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
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
  // Grows whenever a node comes, goes, or is another one.
  uint64_t changes() const { return changes_; }
  // With an open session, by name.
  std::vector<ClusterNode*> Connected(v1::Role role);
  // Whether nodes of the stored state may still come back.
  bool Settling(absl::Time now) const { return expected_ > 0 && now < expected_until_; }
  std::vector<v1::NodeStatus> List() const;  // of StatusOfNode
  void Save(v1::StoredCluster& stored) const;

 private:
  ClusterNode& Add(const NodeName& name);
  void SetRole(ClusterNode& node, v1::Role role);
  void Count(const ClusterNode& node, int by);
  void Forget(absl::Time now);
  absl::Status CheckInterface(const v1::Hello& hello) const;

  const CoordinatorOptions options_;
  std::map<NodeName, ClusterNode> nodes_;
  absl::flat_hash_map<SessionToken, ClusterNode*> sessions_;
  // What follows from nodes_:
  absl::flat_hash_map<NodeName, ClusterNode*> by_name_;
  std::map<v1::Role, std::map<NodeName, ClusterNode*>> by_role_;
  std::set<std::pair<absl::Time, NodeName>> dead_;  // by when they were last heard
  std::map<uint32_t, int> alive_;                   // how many, by the interface of their program
  uint64_t changes_ = 0;
  int expected_ = 0;           // nodes of the stored state that have not come back yet
  absl::Time expected_until_;  // when these are given up
};

// A node's name: letters, digits, '-', '_' and '.', 1 to 63 characters. INVALID_ARGUMENT names the field that is wrong.
absl::Status CheckHello(const v1::Hello& hello);

}  // namespace cairn
