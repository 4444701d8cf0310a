// What must hold in every run, whatever happened in it. Each checker watches from outside of the cores.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/model/graph.h"
#include "common/model/step_plan.h"
#include "server/partition_core.h"
#include "tests/sim/world.h"

namespace cairn::sim {

// Promises 1, 2 and 4: applied exactly once, acknowledged kept, every example once.
//
// It sees each log entry that a ps appends, each version that a worker was told, and each recovery.
class UpdateOracle {
 public:
  UpdateOracle(World& world, v1::JobSpec spec, StepPlan plan) : world_(world), spec_(std::move(spec)), plan_(plan) {}

  void Appended(uint32_t partition, const v1::LogEntry& entry);
  void Acknowledged(uint32_t partition, uint64_t version);
  void Recovered(uint32_t partition, const PartitionState& state);
  // At the end: every (step, replica) was applied once in every partition.
  void Finish(size_t partitions);

 private:
  struct Partition {
    uint64_t version = 0;
    uint64_t acknowledged = 0;
    std::map<std::pair<uint32_t, uint64_t>, int> applied;  // (replica or 0, sequence) -> times
  };
  World& world_;
  const v1::JobSpec spec_;
  const StepPlan plan_;
  std::map<uint32_t, Partition> partitions_;
};

// Promise 6, the part that cores decide: what waits is bounded.
void CheckBounds(World& world, const PartitionCore& core);

// Promise 3 (and the exact sum of asynchronous jobs): the numbers of every partition at the end.
void CheckValues(World& world, const std::vector<float>& expected, const v1::PartitionRange& range, const PartitionState& state);

}  // namespace cairn::sim
