// Placement: who holds which partition, who computes which replica. Pure functions, deterministic for equal input.
//
// Any thread. Invariants:
//   1. Every partition and every replica has an owner where there is a ps, a worker.
//   2. Partitions of one job: the bytes of two ps differ by at most the largest partition; what is left over evens out
//   the bytes that
//      the ps hold for all jobs. Neighbouring partitions lie on different ps, so that all ps have work while the
//      backward pass runs.
//   3. Replicas of one job: a worker's share is its quota (replicas * slots / all slots) rounded down or up; shares are
//   contiguous,
//      larger ones first, so that shares that are powers of two are whole subtrees of the summation tree (design §4).
//   4. A change moves as few replicas as it can.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cairn/v1/cluster.pb.h"
#include "common/base/ids.h"

namespace cairn {

struct PsLoad {
  NodeName name;
  uint64_t bytes = 0;  // that it holds for all jobs
};

struct WorkerCapacity {
  NodeName name;
  int32_t slots = 1;  // >= 1
};

// The owner of each partition. `ps` is not empty.
std::vector<NodeName> PlacePartitions(const std::vector<v1::PartitionRange>& partitions, std::vector<PsLoad> ps);

// The owner of each replica of a job that starts. `workers` is not empty.
std::vector<NodeName> PlaceReplicas(int32_t replicas, std::vector<WorkerCapacity> workers);

// After a loss: replicas whose owner is not among `workers` (or is empty) go to those with the least load for their
// slots; no other replica moves. Without workers they get no owner ("").
std::vector<NodeName> AdoptOrphans(std::vector<NodeName> owners, const std::vector<WorkerCapacity>& workers);

// After a join: shares become the quotas of `workers` (invariant 3) with the fewest moves; a worker gives away its
// highest replicas. Owners not among `workers` lose theirs.
std::vector<NodeName> RebalanceReplicas(std::vector<NodeName> owners, const std::vector<WorkerCapacity>& workers);

// "0,1,5-7"
std::string ReplicaListText(const std::vector<int32_t>& replicas);

}  // namespace cairn
