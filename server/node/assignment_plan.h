// How a new assignment of a job (HostPartitions) changes the partitions of a ps: which leave memory, and which are
// rolled back on disk.
//
// Stateless, without threads: PartitionHost and the simulator carry the plan out. In this order, each step done before
// the next begins:
//   1. `gone` leaves memory, so that nothing writes to partitions that SetHostedJob deletes.
//   2. `ahead` leaves memory, then TakeBack.
//   3. Persistence::SetHostedJob(stored). From here on the assignment's rollback_to is done: a restarted ps does not
//      roll back again.
//   4. Partitions that are not in memory are loaded, and all copies get their roles.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "cairn/v1/cluster.pb.h"
#include "common/base/ids.h"
#include "server/core/partition_state.h"
#include "server/storage/persistence.h"

namespace cairn {

// A partition that is in memory.
struct PartitionInMemory {
  int64_t begin = 0, end = 0;
  uint64_t version = 0;
  bool failed = false;  // its store failed: its state in memory is gone
};

struct AssignmentPlan {
  std::vector<uint32_t> gone;                    // no longer assigned, or with another range
  std::vector<uint32_t> ahead;                   // at another version than the one that the job goes back to
  std::vector<v1::PartitionRange> back_on_disk;  // for TakeBack
  std::optional<uint64_t> back_to;               // the version; nullopt: no rollback
  v1::HostPartitions stored;
};

// present: the generation of the previous assignment, as it was loaded or last applied; nullopt: there was none.
// rollback_to is applied once, if the generation is newer. A partition that is already at that version stays in memory:
// without a log it may exist nowhere else. No worker pushes to it meanwhile, since the workers were not told of the
// previous generation.
// Errors: ABORTED, the generation is older than the present one.
absl::StatusOr<AssignmentPlan> PlanAssignment(const v1::HostPartitions& host, std::optional<Generation> present,
                                              const std::map<uint32_t, PartitionInMemory>& in_memory);

// On disk: rolls primaries back to plan.back_to, and deletes backups, which start with an image anyway.
// Errors: those of config_of and of Persistence::RollBack.
absl::Status TakeBack(const AssignmentPlan& plan,
                      const std::function<absl::StatusOr<PartitionConfig>(const v1::PartitionRange&)>& config_of,
                      Persistence& persistence);

}  // namespace cairn
