// The GradientLayout of a job: from its JobSpec and its model.
//
// Pure functions; any thread.
#pragma once

#include "cairn/v1/job.pb.h"
#include "common/model/graph.h"
#include "common/tensor/gradient_rounding.h"

namespace cairn {

// shift: ceil(log2) of the examples that are added up before the sum is divided: those of a step, or of a push of an
// asynchronous job. `spec` is resolved, `graph` is its model's.
GradientLayout GradientLayoutOf(const Graph& graph, const v1::JobSpec& spec);

}  // namespace cairn
