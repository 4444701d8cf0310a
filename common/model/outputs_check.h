// Checks JobSpec.outputs at submission: the losses and metrics of a job that trains several outputs.
//
// Pure functions; any thread. Errors: INVALID_ARGUMENT, `field: what is wrong; what to do`.
#pragma once

#include <string>
#include <vector>

#include "cairn/v1/job.pb.h"
#include "common/base/status.h"
#include "common/model/graph.h"

namespace cairn {

// JobSpec.outputs must not be empty. Sorts them in the order of Graph::outputs() and fills in their defaults. An output
// without an entry has no loss, as in Keras.
absl::Status CheckOutputLosses(v1::JobSpec* spec, const Graph& graph, std::vector<std::string>* warnings);

// The node that makes the named output of the checked job.
const Node& OutputNode(const Graph& graph, const std::string& name);

}  // namespace cairn
