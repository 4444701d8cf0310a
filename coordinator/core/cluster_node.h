// ClusterNode: what the coordinator knows of one node: what it said of itself, whether it is alive, and what it does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"
#include "common/base/ids.h"
#include "coordinator/core/node_lease.h"

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

// What a node runs on, as it says in Hello.
struct NodeMachine {
  std::string host;
  std::string device;                         // for people: the model of its processor
  std::string fingerprint;                    // of what decides the bits of its results; not stored
  v1::Device device_kind = v1::CPU;           // worker, evaluator
  std::vector<v1::DataType> compute_dtypes;   // likewise: the ones it supports; empty: not known
  std::vector<v1::ExternalProgram> programs;  // likewise
  bool programs_only = false;                 // likewise: it computes jobs of these programs and no others
  std::string version;                        // of its program, for people
  uint32_t interface = 1;                     // its cluster interface
  bool serves_log = false;                    // it answers FetchLog; not stored
  bool serves_trace = false;                  // it answers FetchTrace; not stored

  static NodeMachine Of(const v1::Hello& hello);
  static NodeMachine Of(const v1::NodeStatus& stored);
};

// Partitions that a ps holds although it was not to, and that no copy which is there replaces (Reconciler).
struct KeptAside {
  std::vector<uint32_t> partitions;
  absl::Time since;
  bool told = false;
};

// What a process does for each job, and what it was told, as far as the coordinator knows: from its Hello on, until it
// is given up.
struct NodeWork {
  std::map<uint64_t, RunningReplicas> running;  // worker: by job
  std::map<uint64_t, size_t> hosting;           // ps: by job, the hash of the last command; 0: not known
  std::map<uint64_t, KeptAside> aside;          // ps: by job
  std::optional<std::string> not_ready;         // ps: the last Readiness.why that was sent; nullopt: none was sent
};

// What the process of a node uses, by its heartbeats.
class NodeLoad {
 public:
  void Note(const v1::Heartbeat& heartbeat, absl::Time now);
  void Fill(v1::NodeStatus& status) const;

 private:
  std::optional<uint64_t> memory_bytes_;  // nullopt: not reported yet
  double cpu_seconds_ = 0;                // of the last heartbeat; 0: not known
  absl::Time noted_ = absl::InfinitePast();
  std::optional<double> processors_;  // used between the last two
};

struct ClusterNode {
  NodeName name;
  v1::Role role = v1::ROLE_UNSPECIFIED;
  std::string address;
  NodeMachine machine;
  int32_t slots = 0;
  uint64_t incarnation = 0;  // 0: not known
  NodeLoad load;
  bool draining = false;  // a user drains it
  std::string fault;      // the fault that it reported (ps: store, worker: device); empty: it is healthy
  absl::Time failed_at = absl::InfinitePast();  // when it first reported one
  NodeLease lease;
  NodeWork work;

  bool alive() const { return lease.alive(); }
  bool connected() const { return lease.connected(); }
  // It must get no new work, and its present work is to move elsewhere.
  bool leaving() const { return draining || !fault.empty(); }
  void SetFault(std::string reported, absl::Time now) {
    if (fault.empty()) failed_at = now;
    fault = std::move(reported);
  }
};

// The caller fills in slots_used, partitions and primaries.
v1::NodeStatus StatusOfNode(const ClusterNode& node);
void FillStatus(const ClusterNode& node, v1::NodeStatus* empty);

}  // namespace cairn
