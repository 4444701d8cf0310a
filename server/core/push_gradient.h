// What a push brings: its fields checked, its gradient taken out.
//
// Pure functions of a partition's configuration; any thread.
#pragma once

#include "common/base/status.h"
#include "common/tensor/frame.h"
#include "server/core/partition_state.h"

namespace cairn {

// Errors: INVALID_ARGUMENT, which names the field.
absl::Status CheckPush(const PartitionConfig& config, const Frame& push);
// The gradient of a checked push, as the partition's kind sums it; empty where the push has no examples. Takes the
// payload.
Buffer TakeGradient(const PartitionConfig& config, Frame& push);

}  // namespace cairn
