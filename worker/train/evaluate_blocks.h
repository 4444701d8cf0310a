// A program's figures of many examples, block by block: validation in training, evaluation after it.
//
// Of one slot thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/types/span.h"
#include "common/data/dataset.h"
#include "common/model/step_plan.h"
#include "worker/backend/backend.h"
#include "worker/train/compute_pool.h"

namespace cairn {

// The examples of one of `shards` shards of an evaluation: a run of whole blocks, so that the blocks of all shards are
// the same however many shards there are. May be empty.
PlaceRange ExamplesOfShard(int64_t examples, int64_t block, int64_t shard, int64_t shards);

// Adds up what the program says of the examples begin .. end - 1 of the split, in blocks of the program's batch_max. A
// block's figures are rounded once and added exactly (common/base/exact_sum.h): sums of blocks have the same bits
// whoever computed which.
// Stops with CANCELLED when *stop is set.
absl::StatusOr<BatchSums> EvaluateBlocks(Program& program, const JobModel& model, const Dataset& dataset,
                                         v1::Split split, PlaceRange places, absl::Span<const float> values,
                                         const std::atomic<bool>& stop);

}  // namespace cairn
