// The learning rate schedule's part of CheckJob: Keras' defaults filled in, numbers within their ranges.
#pragma once

#include "cairn/v1/optimizer.pb.h"
#include "common/base/status.h"

namespace cairn {

// Does nothing if there is no schedule. For piecewise_constant_decay, sets learning_rate to the schedule's first value.
// Errors: INVALID_ARGUMENT, `optimizer.schedule.cosine_decay.decay_steps: missing; use a number of steps such as 1000`.
absl::Status ResolveSchedule(v1::Optimizer* optimizer);
// Whether the schedule's first learning rate may be 0: it warms up, or lists its values.
bool MayBeginAtZero(const v1::Optimizer& optimizer);

}  // namespace cairn
