// Assigns examples to steps and replicas, and cuts the parameter space: pure functions whose results every node must
// agree on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cairn/v1/commands.pb.h"
#include "common/base/ids.h"

namespace cairn {

// A range of positions in a pass's order; Permutation maps a position to an example.
struct PlaceRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

// A pass visits the data once, in its own order. An epoch is one pass, or several if it has more steps than a pass has
// batches; it always starts a new pass.
struct StepPlan {
  int64_t examples = 0;    // in the training split
  int64_t batch_size = 0;  // examples of a step: JobSpec.batch_size * accumulate_steps
  // accumulate_steps: a replica splits its examples of a step into this many and computes them in turn
  int32_t pieces = 1;
  int32_t replicas = 0;
  int64_t batches = 0;  // of a pass; the last one is short unless short batches are dropped
  int64_t steps_per_epoch = 0;
  int64_t total_steps = 0;

  // The plan of a job whose defaults are all filled in; replicas may be 0 if only steps are needed. Every node makes
  // its plan with this function.
  static StepPlan Of(const v1::JobSpec& spec, int64_t examples);
  // steps_per_epoch == 0: all batches of a pass. drop_remainder: drops a pass's last batch if it is short, unless it is
  // the only one.
  static StepPlan Make(int64_t examples, int64_t batch_size, int32_t replicas, int64_t steps_per_epoch, int32_t epochs,
                       bool drop_remainder = false);

  int64_t EpochOf(int64_t step) const { return step / steps_per_epoch; }
  // Equal to the epoch if no epoch has more steps than a pass.
  int64_t PassOf(int64_t step) const {
    const int64_t passes = (steps_per_epoch + batches - 1) / batches;  // started in an epoch
    return EpochOf(step) * passes + step % steps_per_epoch / batches;
  }
  // Positions in the pass's order. The step's positions are split into `replicas` contiguous ranges whose sizes differ
  // by at most one; a range may be empty.
  PlaceRange Places(int64_t step, ReplicaId replica) const;
  // The replica's range split into `pieces`. In a short step the last pieces may be empty.
  PlaceRange Piece(int64_t step, ReplicaId replica, int32_t piece) const;
  // The maximum number of examples in a piece.
  int64_t piece_max() const {
    const int64_t parts = int64_t{std::max(replicas, 1)} * pieces;
    return (batch_size + parts - 1) / parts;
  }
};

// The part of `items` (such as a validation split) with index `index` of `parts`: contiguous; sizes differ by at most
// one.
PlaceRange Share(int64_t items, int64_t index, int64_t parts);

// Cuts [0, space_size) into partitions of partition_bytes (the last one shorter). If there are several, the first is
// cut again, into an eighth, an eighth, a quarter and a half. The gradients of the first layers are complete last and
// their values are needed first, so the whole round trip of the last push is waited for. With an eighth of a partition
// that round trip is short.
std::vector<v1::PartitionRange> CutPartitions(int64_t space_size, int64_t partition_bytes);

}  // namespace cairn
