// Membership: the nodes of the cluster, their sessions and leases (docs/architecture.md#coordinators).
//
// Not thread-safe; used by ClusterCore. Invariants:
//   1. At most one session belongs to a node, and a session to at most one node.
//   2. A node is alive from its Hello until its lease lapses (open
//      session) or dead_at passes (no session). Nodes of the stored state
//      start alive without a session: they have start_grace to come back.
//   3. At most kNodesMax nodes are alive, and at most dead_nodes_kept_max
//      dead ones are remembered, for dead_nodes_kept_for.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"
#include "cairn/v1/storage.pb.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "coordinator/core/events.h"
#include "coordinator/core/options.h"

namespace cairn {

// What a worker computes for one job, as far as the coordinator knows.
struct RunningReplicas {
  uint64_t generation = 0;
  std::vector<int32_t> replicas;  // ascending
  std::optional<bool> chief;      // unknown after Hello
  int64_t epochs = 0;             // EpochsCode; 0: the job does not wait at the end of epochs, or unknown
  uint64_t assignment = 0;        // the last that it was sent; 0: none since its Hello

  // Whether a report that names assignment `said` concerns these replicas. 0: the worker named no assignment.
  bool Covers(uint64_t said) const { return said == 0 || said >= assignment; }
};

struct ClusterNode {
  NodeName name;
  v1::Role role = v1::ROLE_UNSPECIFIED;
  std::string address;
  std::string host;
  std::string device;
  std::string fingerprint;
  v1::Device device_kind = v1::CPU;           // worker, evaluator
  std::vector<v1::DataType> compute_dtypes;   // likewise: the ones it supports; empty: not known
  std::vector<v1::ExternalProgram> programs;  // likewise
  bool programs_only = false;                 // likewise: it computes jobs of these programs and no others
  int32_t slots = 0;
  uint64_t incarnation = 0;              // 0: not known
  bool expected = false;                 // was alive before this coordinator started, and is not back yet
  std::optional<uint64_t> memory_bytes;  // nullopt: not reported yet
  absl::Time joined;
  absl::Time last_heard;

  bool draining = false;  // a user drains it
  std::string fault;      // the fault that it reported (ps: store, worker: device); empty: it is healthy
  // It must get no new work, and its present work is to move elsewhere.
  bool leaving() const { return draining || !fault.empty(); }

  bool alive = false;
  SessionToken session;                         // 0: none open
  absl::Time dead_at = absl::InfiniteFuture();  // without a session
  std::map<uint64_t, RunningReplicas> running;  // worker: by job
  // ps: the last Readiness.why sent to this process; nullopt: none was sent.
  std::optional<std::string> not_ready;
  std::map<uint64_t, size_t> hosting;  // ps: by job, the hash of the last command; 0: not known

  bool connected() const { return session.value != 0; }
};

// The caller fills in slots_used, partitions and primaries.
v1::NodeStatus StatusOfNode(const ClusterNode& node);

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

  const CoordinatorOptions options_;
  std::map<NodeName, ClusterNode> nodes_;
  std::map<SessionToken, NodeName> sessions_;
};

// A node's name: letters, digits, '-', '_' and '.', 1 to 63 characters. INVALID_ARGUMENT names the field that is wrong.
absl::Status CheckHello(const v1::Hello& hello);

}  // namespace cairn
