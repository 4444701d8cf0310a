// Checks data.inputs: which part of an example each input of the model takes.
//
// Pure functions; any thread. Errors: INVALID_ARGUMENT, `field: what is wrong; what to do`.
#pragma once

#include <vector>

#include "cairn/v1/job.pb.h"
#include "common/base/status.h"
#include "common/model/graph.h"

namespace cairn {

// Sorts data.inputs in the order of Graph::inputs(), which is the order of the numbers in an example, and names each
// input.
absl::Status CheckInputSources(v1::JobSpec* spec, const Graph& graph);

// Checks what depends on the data. sizes: how many numbers the data set has for each of data.inputs; empty if there are
// no data.inputs.
absl::Status CheckInputSizes(const Graph& graph, const v1::Data& data, const std::vector<int64_t>& sizes);

}  // namespace cairn
