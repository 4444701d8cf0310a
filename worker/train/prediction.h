// Computes the model's outputs for examples of a split: the part of a prediction that runs on a slot.
//
// Called on one slot thread.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "worker/train/compute_pool.h"
#include "worker/train/evaluate_blocks.h"

namespace cairn {

// Returns the outputs for these examples, in order, as little-endian float32. They are computed in blocks of
// the program's batch_max. Returns CANCELLED soon after *stop is set.
absl::StatusOr<std::string> PredictBlocks(Program& program, const JobModel& model, const ExampleRange& examples,
                                          absl::Span<const float> values, const std::atomic<bool>& stop);

// What the examples are in the data (Dataset::NameOf), as UTF-8 of at most kInputNameBytesMax bytes each; empty: all of
// them would be longer than bytes_max.
std::vector<std::string> InputNames(const ExampleRange& examples, size_t bytes_max);

}  // namespace cairn
