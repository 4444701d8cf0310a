// A program's figures of many examples, block by block: validation in training, evaluation after it.
//
// Of one slot thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "absl/types/span.h"
#include "common/model/step_plan.h"
#include "worker/backend/backend.h"
#include "worker/compute_pool.h"
#include "worker/data/dataset.h"

namespace cairn {

// Adds up what the program says of the examples begin .. end - 1 of the split, in blocks of the program's batch_max.
// `index` turns a place into an example. Stops with CANCELLED when *stop is set.
absl::StatusOr<BatchSums> EvaluateBlocks(Program& program, const JobModel& model, const Dataset& dataset,
                                         v1::Split split, PlaceRange places,
                                         const std::function<int64_t(int64_t)>& index, absl::Span<const float> values,
                                         const std::atomic<bool>& stop);

}  // namespace cairn
