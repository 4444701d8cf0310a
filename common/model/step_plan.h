// Which examples belong to which step and replica, and the cutting of the parameter space: the pure functions that
// every node must agree on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cairn/v1/cluster.pb.h"
#include "common/base/ids.h"

namespace cairn {

// A range of places in a pass's order; Permutation turns a place into an example.
struct PlaceRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

// A pass goes through the data once, in an order of its own. An epoch is one pass, or as many as its steps take where
// there are more of them than batches; it always begins a new one.
struct StepPlan {
  int64_t examples = 0;    // in the training split
  int64_t batch_size = 0;  // examples of a step: JobSpec.batch_size * accumulate_steps
  int32_t pieces = 1;  // accumulate_steps: a replica computes its examples of a step in so many, one after the other
  int32_t replicas = 0;
  int64_t batches = 0;  // of a pass; the last one is short unless short ones are dropped
  int64_t steps_per_epoch = 0;
  int64_t total_steps = 0;

  // As the job says, of which every default is filled in; replicas may be 0 where only steps are asked for. Every node
  // makes it like this.
  static StepPlan Of(const v1::JobSpec& spec, int64_t examples);
  // steps_per_epoch == 0: all batches of a pass. drop_remainder: without a pass's last batch where it is short, unless
  // it is the only one.
  static StepPlan Make(int64_t examples, int64_t batch_size, int32_t replicas, int64_t steps_per_epoch, int32_t epochs,
                       bool drop_remainder = false);

  int64_t EpochOf(int64_t step) const { return step / steps_per_epoch; }
  // Equal to the epoch where no epoch has more steps than a pass.
  int64_t PassOf(int64_t step) const {
    const int64_t passes = (steps_per_epoch + batches - 1) / batches;  // begun in an epoch
    return EpochOf(step) * passes + step % steps_per_epoch / batches;
  }
  // Of the pass's order. The step's places are cut into `replicas` runs whose sizes differ by at most one; a run may be
  // empty.
  PlaceRange Places(int64_t step, ReplicaId replica) const;
  // The replica's run cut into `pieces`; those of a short step may be empty, the last ones.
  PlaceRange Piece(int64_t step, ReplicaId replica, int32_t piece) const;
  // The most examples that a piece has.
  int64_t piece_max() const {
    const int64_t parts = int64_t{std::max(replicas, 1)} * pieces;
    return (batch_size + parts - 1) / parts;
  }
};

// Share of `items` (a validation split, say) that falls to part `index` of `parts`: contiguous, sizes differ by at most
// one.
PlaceRange Share(int64_t items, int64_t index, int64_t parts);

// Cuts [0, space_size) into partitions of partition_bytes (the last one shorter). The first of several large ones is
// cut again, into an eighth, an eighth, a quarter and a half: the gradients of the first layers are final last and
// their values are wanted first, so that the whole way of what is pushed last is waited for. A way of an eighth is
// short.
std::vector<v1::PartitionRange> CutPartitions(int64_t space_size, int64_t partition_bytes);

}  // namespace cairn
