// Which examples belong to which step and replica, and the cutting of the parameter space: the pure functions that every node
// must agree on.
#pragma once

#include <cstdint>
#include <vector>

#include "cairn/v1/cluster.pb.h"
#include "common/base/ids.h"

namespace cairn {

// A range of places in the epoch's order; Permutation turns a place into an example.
struct PlaceRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

struct StepPlan {
  int64_t examples = 0;  // in the training split
  int64_t batch_size = 0;
  int32_t replicas = 0;
  int64_t steps_per_epoch = 0;
  int64_t total_steps = 0;

  // steps_per_epoch == 0: all batches of an epoch, the last one short.
  static StepPlan Make(int64_t examples, int64_t batch_size, int32_t replicas, int64_t steps_per_epoch, int32_t epochs);

  int64_t EpochOf(int64_t step) const { return step / steps_per_epoch; }
  // The step's places are cut into `replicas` runs whose sizes differ by at most one; a run may be empty.
  PlaceRange Places(int64_t step, ReplicaId replica) const;
};

// Share of `items` (a validation split, say) that falls to part `index` of `parts`: contiguous, sizes differ by at most one.
PlaceRange Share(int64_t items, int64_t index, int64_t parts);

// Cuts [0, space_size) into partitions of partition_bytes (the last one shorter).
std::vector<v1::PartitionRange> CutPartitions(int64_t space_size, int64_t partition_bytes);

}  // namespace cairn
