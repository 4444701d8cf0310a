#include "tests/sim/checkers.h"

#include <cstring>

#include "absl/strings/str_format.h"
#include "tests/sim/job.h"

namespace cairn::sim {

void UpdateOracle::Appended(uint32_t partition, const v1::LogEntry& entry) {
  Partition& p = partitions_[partition];
  if (entry.version() != p.version + 1) {
    world_.Fail(absl::StrFormat("partition %d: version %d was applied after %d", partition, entry.version(), p.version));
  }
  p.version = entry.version();
  const bool synchronous = IsSynchronous(spec_);
  const uint32_t replica = synchronous ? 0 : entry.replica_first();
  if (++p.applied[{replica, entry.sequence()}] > 1) {
    world_.Fail(absl::StrFormat("partition %d: sequence %d of replica %d was applied twice", partition, entry.sequence(), replica));
  }
  const int64_t step = static_cast<int64_t>(entry.sequence()) - 1;
  int64_t examples = 0;
  if (synchronous) {
    for (int32_t r = 0; r < spec_.replicas(); ++r) examples += plan_.Places(step, ReplicaId(r)).size();
  } else {
    examples = plan_.Places(step, ReplicaId(replica)).size();
  }
  if (examples != static_cast<int64_t>(entry.examples())) {
    world_.Fail(absl::StrFormat("partition %d, step %d: %d examples were counted, the step has %d", partition, step,
                                entry.examples(), examples));
  }
}

void UpdateOracle::Acknowledged(uint32_t partition, uint64_t version) {
  Partition& p = partitions_[partition];
  p.acknowledged = std::max(p.acknowledged, version);
}

void UpdateOracle::Recovered(uint32_t partition, const PartitionState& state) {
  Partition& p = partitions_[partition];
  if (state.version < p.acknowledged) {
    world_.Fail(absl::StrFormat("partition %d came back at version %d, but %d was acknowledged", partition, state.version,
                                p.acknowledged));
  }
  if (state.version != p.version) {
    world_.Fail(absl::StrFormat("partition %d came back at version %d, but %d was in the log", partition, state.version, p.version));
  }
  if (IsSynchronous(spec_) && state.version > 0 && state.previous.empty()) {
    world_.Fail(absl::StrFormat("partition %d came back at version %d without the version before", partition, state.version));
  }
}

void UpdateOracle::Finish(size_t partitions) {
  const size_t each = plan_.total_steps * (IsSynchronous(spec_) ? 1 : spec_.replicas());
  for (uint32_t p = 0; p < partitions; ++p) {
    if (partitions_[p].applied.size() != each) {
      world_.Fail(absl::StrFormat("partition %d: %d updates were applied, the job has %d", p, partitions_[p].applied.size(), each));
    }
  }
}

void CheckBounds(World& world, const PartitionCore& core) {
  const size_t bound = kWaitersPerReplicaMax * core.config().replicas + kWaitersExtraMax;
  if (core.waiting() > bound) world.Fail(absl::StrFormat("%d requests wait, the bound is %d", core.waiting(), bound));
}

void CheckValues(World& world, const std::vector<float>& expected, const v1::PartitionRange& range, const PartitionState& state) {
  const size_t size = range.end() - range.begin();
  if (std::memcmp(state.values.data(), expected.data() + range.begin(), size * sizeof(float)) == 0) return;
  for (size_t i = 0; i < size; ++i) {
    if (state.values.floats()[i] != expected[range.begin() + i]) {
      world.Fail(absl::StrFormat("partition %d: number %d is %.9g, the sequential reference has %.9g", range.partition(),
                                 range.begin() + i, state.values.floats()[i], expected[range.begin() + i]));
      return;
    }
  }
  world.Fail(absl::StrFormat("partition %d: the bits differ from the sequential reference", range.partition()));
}

}  // namespace cairn::sim
