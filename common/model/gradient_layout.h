// How a job's gradients and values travel: derived from its JobSpec and its model.
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

v1::DataType GradientTypeOf(const v1::JobSpec& spec);  // wire_dtype; FLOAT32 if it is unset
// values_wire_dtype; if it is unset that of gradients, but BFLOAT16 where these are blocks.
v1::DataType ValuesTypeOf(const v1::JobSpec& spec);
// Whether the layout says more than the types: averages that have a type of their own, a shift.
bool NeedsLayout(const v1::JobSpec& spec);

}  // namespace cairn
