// Evaluates a program on many examples, block by block: for validation during training and for evaluation after it.
//
// Called on one slot thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/types/span.h"
#include "common/data/dataset.h"
#include "common/model/step_plan.h"
#include "worker/backend/backend.h"
#include "worker/train/compute_pool.h"

namespace cairn {

// The examples of one of the `shards` shards of an evaluation: a run of whole blocks, so that the blocks are the same
// for any number of shards. May be empty.
PlaceRange ExamplesOfShard(int64_t examples, int64_t block, int64_t shard, int64_t shards);

// Some examples of a split, in its order.
struct ExampleRange {
  const Dataset& dataset;
  v1::Split split;
  PlaceRange places;
};

// Returns the sums over these examples, evaluated in blocks of the program's batch_max. The figures of a
// block are rounded once and added exactly (common/base/exact_sum.h): their sums have the same bits whichever worker
// computes which block. Returns CANCELLED soon after *stop is set.
absl::StatusOr<BatchSums> EvaluateBlocks(Program& program, const JobModel& model, const ExampleRange& examples,
                                         absl::Span<const float> values, const std::atomic<bool>& stop);

}  // namespace cairn
