// Usage: what all jobs together take of each node: slots of workers, bytes of ps.
//
// Not thread-safe; used by JobTable. Invariants:
//   1. A job counts with what it had when it was noted last. JobTable notes it
//      whenever it stores it, and nothing that is counted changes without being stored.
//   2. A question costs the same for one job and for thousands; noting one costs its replicas and partitions.
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

  // Replicas that it computes, of jobs that start or run: they may be more than its slots.
  int32_t ReplicasOn(const NodeName& worker) const;
  // Of all copies, also of jobs that have ended and keep their weights.
  uint64_t BytesOn(const NodeName& ps) const;
  // Copies of ended jobs that are to catch up: all, and those with an end here.
  int EndedSyncing() const { return all_.ended_copies; }
  int EndedSyncingOn(const NodeName& ps) const;
  // What of it is this job's.
  uint64_t BytesOn(const NodeName& ps, uint64_t job_id) const;

 private:
  struct OfJob {
    absl::flat_hash_map<NodeName, int32_t> replicas;
    absl::flat_hash_map<NodeName, uint64_t> bytes;
    absl::flat_hash_map<NodeName, int> ended_syncing;
    int ended_copies = 0;
  };
  absl::flat_hash_map<uint64_t, OfJob> jobs_;
  OfJob all_;  // only what is not zero
};

}  // namespace cairn
