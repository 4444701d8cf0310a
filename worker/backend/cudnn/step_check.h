// Checks of what a step is given: before it on the host, and of the numbers that only the device knows behind its
// forward pass.
//
// Pure functions; any thread.
#pragma once

#include "absl/types/span.h"
#include "common/model/graph.h"
#include "worker/backend/backend.h"
#include "worker/backend/cudnn/plan.h"

namespace cairn::cudnn {

// Errors: INVALID_ARGUMENT for sizes that do not fit the model or the program, which was compiled for batch_max
// examples, and for values of a type that does not cross to a device.
absl::Status CheckSizes(const Graph& graph, int64_t batch_max, const Batch& batch, const StepInfo& info,
                        absl::Span<const float> values);

// The error of the first layer that refuses a number. refusals: Plan::refusal_numbers of them, of the host.
absl::Status RefusalOf(const Plan& plan, const double* refusals);

}  // namespace cairn::cudnn
