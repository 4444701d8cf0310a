// Placement: which ps holds which partition, which worker computes which replica. Pure functions, deterministic.
//
// Any thread. Invariants:
//   1. Every partition has a ps if there is any; every replica has a worker if there is any.
//   2. Partitions of one job: the bytes of two ps differ by at most the
//      largest partition; remaining choices even out the bytes that the
//      ps hold for all jobs. Neighbouring partitions lie on different
//      ps, so that all ps have work while the backward pass runs.
//   3. Replicas of one job: a worker's share is its quota (replicas * slots / all slots)
//      rounded down or up; shares are contiguous, larger ones first, so that shares that
//      are powers of two are whole subtrees of the tree (common/tensor/summation_tree.h).
//   4. A change moves as few replicas as it can.
//   5. The copies of a partition lie on different ps, and on different host labels where there is a choice.
//   6. All replicas of a job run on one kind of device at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cairn/v1/cluster.pb.h"
#include "common/base/ids.h"

namespace cairn {

struct PsLoad {
  NodeName name;
  std::string host;
  uint64_t bytes = 0;  // that the ps holds for all jobs
};

struct PartitionCopies {
  NodeName primary;
  std::vector<NodeName> backups;
};

struct WorkerCapacity {
  NodeName name;
  int32_t slots = 1;  // >= 1
  v1::Device device = v1::CPU;
};

// The ps of each partition, with `backups` backups each, or fewer where there are not enough ps. `ps` is not empty. The
// largest partitions are placed first: small ones then even out the bytes of each ps.
std::vector<PartitionCopies> PlacePartitions(const std::vector<v1::PartitionRange>& partitions,
                                             const std::vector<PsLoad>& ps, int backups);

// The ps for one more copy of a partition whose copies are on `holders`: not a holder, preferably with a host label
// that no holder has, then the one with the fewest bytes. Empty: there is none.
NodeName PickCopy(const std::vector<NodeName>& holders, const std::vector<std::string>& holder_hosts,
                  const std::vector<PsLoad>& ps);

// A primary that should move to even out the bytes of a job's primaries over `ps` (primaries on other ps do not count);
// nullopt: they satisfy invariant 2. Each move improves the balance, so that a series of moves ends.
struct PrimaryMove {
  size_t partition = 0;
  NodeName to;
};
std::optional<PrimaryMove> NextPrimaryMove(const std::vector<uint64_t>& bytes,
                                           const std::vector<PartitionCopies>& copies, const std::vector<PsLoad>& ps);

// Likewise a backup, for the bytes of backups. The target is a ps without a copy of the partition; its host label may
// be that of another copy only if the backup shares one already.
struct BackupMove {
  size_t partition = 0;
  NodeName from, to;
};
std::optional<BackupMove> NextBackupMove(const std::vector<uint64_t>& bytes, const std::vector<PartitionCopies>& copies,
                                         const std::vector<PsLoad>& ps);

// The workers with the first kind of device in `preferred` that at least at_least (>= 1) workers have, in their order;
// empty: no kind has that many. Workers with a kind that is not in `preferred` are never returned.
std::vector<WorkerCapacity> OfOneDevice(std::vector<WorkerCapacity> workers, const std::vector<v1::Device>& preferred,
                                        size_t at_least = 1);

// The owner of each replica of a job that starts. `workers` is not empty.
std::vector<NodeName> PlaceReplicas(int32_t replicas, std::vector<WorkerCapacity> workers);

// After a loss: replicas whose owner is not among `workers` (or is empty) go to the workers with the least load per
// slot; no other replica moves. Without workers they get no owner ("").
std::vector<NodeName> AdoptOrphans(std::vector<NodeName> owners, const std::vector<WorkerCapacity>& workers);

// After a join: shares become the quotas of `workers` (invariant 3) with the fewest moves; a worker gives away its
// highest replicas. Owners not among `workers` lose all of theirs.
std::vector<NodeName> RebalanceReplicas(std::vector<NodeName> owners, const std::vector<WorkerCapacity>& workers);

// "0,1,5-7"
std::string ReplicaListText(const std::vector<int32_t>& replicas);

}  // namespace cairn
