// Checks the fields of a push and takes out its gradient.
//
// Pure functions of a partition's configuration; any thread.
#pragma once

#include "common/base/status.h"
#include "common/tensor/frame.h"
#include "server/core/partition_state.h"

namespace cairn {

// Errors: INVALID_ARGUMENT names the field.
absl::Status CheckPush(const PartitionConfig& config, const Frame& push);
// The gradient of a checked push, in the kind's form of sums; empty if the push has no examples. Takes the
// payload.
Buffer TakeGradient(const PartitionConfig& config, Frame& push);

}  // namespace cairn
