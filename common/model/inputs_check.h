// The check of data.inputs: what of an example each input of the model takes.
//
// Pure functions; any thread. Errors: INVALID_ARGUMENT, `field: what is wrong; what to do`.
#pragma once

#include <vector>

#include "cairn/v1/job.pb.h"
#include "common/base/status.h"
#include "common/model/graph.h"

namespace cairn {

// Puts data.inputs in the order of Graph::inputs(), in which an example's numbers stand, and names each input.
absl::Status CheckInputSources(v1::JobSpec* spec, const Graph& graph);

// What only the data tells. sizes: numbers of each of data.inputs as the data set gives them; empty: without
// data.inputs.
absl::Status CheckInputSizes(const Graph& graph, const v1::Data& data, const std::vector<int64_t>& sizes);

}  // namespace cairn
