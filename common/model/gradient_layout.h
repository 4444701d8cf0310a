// Derives the GradientLayout of a job from its JobSpec and its model.
//
// Pure functions; any thread.
#pragma once

#include "cairn/v1/job.pb.h"
#include "common/model/graph.h"
#include "common/tensor/gradient_rounding.h"

namespace cairn {

// The layout's shift is ceil(log2) of the number of examples that are summed before the division: those of a step, or
// those of a push in an asynchronous job. `spec` must be resolved; `graph` is that of its model.
GradientLayout GradientLayoutOf(const Graph& graph, const v1::JobSpec& spec);

}  // namespace cairn
