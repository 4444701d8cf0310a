// What a push brings: its fields checked, its gradient as float32.
//
// Pure functions of a partition's configuration and, for the penalties, its values; any thread.
#pragma once

#include <cstdint>

#include "common/base/status.h"
#include "common/tensor/frame.h"
#include "server/core/partition_state.h"

namespace cairn {

// Errors: INVALID_ARGUMENT, which names the field.
absl::Status CheckPush(const PartitionConfig& config, const Frame& push);
// The payload as float32, rounded as the job's gradients are: itself where it is, converted or (where it lies askew)
// copied. A client may send another type than the job's, and INT8 that nobody packed. Takes the payload.
Buffer TakeGradient(const PartitionConfig& config, Frame& push);
// The gradient of a sum or push with the regularizers' in it: the log, the backups and images know that one alone.
Buffer AddPenalties(const PartitionConfig& config, const PartitionState& state, uint64_t examples, Buffer gradient);

}  // namespace cairn
