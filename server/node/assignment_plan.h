// What a new assignment of a job (HostPartitions) does to what a ps has of it: what leaves the memory, and what goes
// back on disk.
//
// No threads, nothing is kept: PartitionHost and the simulator carry it out. In this order, each step done before the
// next begins:
//   1. `gone` leaves the memory: nothing writes any more to what SetHostedJob deletes.
//   2. `ahead` leaves the memory, then TakeBack.
//   3. Persistence::SetHostedJob(stored). From here on the assignment's rollback_to is done with: a ps that is started
//      again goes on from there.
//   4. What is not in memory is loaded, and all copies get their roles.
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
  bool failed = false;  // its store failed: what it had is gone
};

struct AssignmentPlan {
  std::vector<uint32_t> gone;                    // not named any more, or with another range
  std::vector<uint32_t> ahead;                   // at another version than the job goes back to
  std::vector<v1::PartitionRange> back_on_disk;  // what TakeBack is for
  std::optional<uint64_t> back_to;               // the version; nullopt: the job goes on from where it is
  v1::HostPartitions stored;
};

// present: the generation of the assignment before this one, as it was loaded or last obeyed; nullopt: there was none.
// rollback_to is obeyed once, where the generation is newer. A partition that is at that version stays in memory:
// without a log it may be nowhere else. Nobody pushes to it meanwhile, for the workers were not told of the generation
// before this one.
// Errors: ABORTED the generation is older than the present one.
absl::StatusOr<AssignmentPlan> PlanAssignment(const v1::HostPartitions& host, std::optional<Generation> present,
                                              const std::map<uint32_t, PartitionInMemory>& in_memory);

// On disk: primaries go back to plan.back_to; a backup is forgotten, it starts with an image anyway.
// Errors: those of config_of and of Persistence::RollBack.
absl::Status TakeBack(const AssignmentPlan& plan,
                      const std::function<absl::StatusOr<PartitionConfig>(const v1::PartitionRange&)>& config_of,
                      Persistence& persistence);

}  // namespace cairn
