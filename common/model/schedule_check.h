// The learning rate schedule's part of CheckJob: Keras' defaults filled in, numbers within their ranges.
#pragma once

#include "cairn/v1/optimizer.pb.h"
#include "common/base/status.h"

namespace cairn {

// Does nothing where there is no schedule. piecewise_constant_decay fills in learning_rate, its first value.
// Errors: INVALID_ARGUMENT, `optimizer.schedule.cosine_decay.decay_steps: missing; use a number of steps such as 1000`.
absl::Status ResolveSchedule(v1::Optimizer* optimizer);
// A schedule whose first learning rate may be 0: one that warms up, or names its own values.
bool MayBeginAtZero(const v1::Optimizer& optimizer);

}  // namespace cairn
