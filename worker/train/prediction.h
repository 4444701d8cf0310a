// The model's outputs for examples of a split: the part of a prediction that a slot computes.
//
// A free function, on a slot's thread.
#pragma once

#include <atomic>
#include <string>

#include "common/data/dataset.h"
#include "worker/train/compute_pool.h"

namespace cairn {

// float32, little-endian, of the examples begin .. end - 1 in their order, computed in blocks of the program's
// batch_max. Stops with CANCELLED when *stop is set.
absl::StatusOr<std::string> PredictBlocks(Program& program, const JobModel& model, const Dataset& dataset,
                                          v1::Split split, PlaceRange places, absl::Span<const float> values,
                                          const std::atomic<bool>& stop);

}  // namespace cairn
