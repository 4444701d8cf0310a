// Usage: the resources that all jobs together use on each node: slots of workers, bytes of ps.
//
// Not thread-safe; used by JobTable. Invariants:
//   1. A job counts as it was at its last Note. JobTable notes a job
//      whenever it stores it, and nothing that is counted changes without being stored.
//   2. A query costs the same for one job and for thousands; Note takes time in the job's replicas and partitions.
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "common/base/ids.h"
#include "coordinator/core/job.h"

namespace cairn {

class Usage {
 public:
  void Note(const Job& job);
  void Forget(uint64_t job_id);

  // Replicas that the worker computes for starting and running jobs; there may be more than its slots.
  int32_t ReplicasOn(const NodeName& worker) const;
  // This job's part of them.
  int32_t ReplicasOn(const NodeName& worker, uint64_t job_id) const;
  // Grows whenever ReplicasOn of a worker changes.
  uint64_t replica_changes() const { return replica_changes_; }
  // Bytes of all copies, including those of ended jobs that keep their weights.
  uint64_t BytesOn(const NodeName& ps) const;
  // Copies of ended jobs that have to catch up: all, and those to or from this ps.
  int EndedSyncing() const { return all_.ended_copies; }
  int EndedSyncingOn(const NodeName& ps) const;
  // This job's part of the bytes.
  uint64_t BytesOn(const NodeName& ps, uint64_t job_id) const;

 private:
  struct OfJob {
    absl::flat_hash_map<NodeName, int32_t> replicas;
    absl::flat_hash_map<NodeName, uint64_t> bytes;
    absl::flat_hash_map<NodeName, int> ended_syncing;
    int ended_copies = 0;
  };
  absl::flat_hash_map<uint64_t, OfJob> jobs_;
  OfJob all_;  // only non-zero entries
  uint64_t replica_changes_ = 0;
};

}  // namespace cairn
