// The outputs of a model's layers, one after the other: each is computed by a model that ends with it.
//
// Free functions; called on a slot.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/base/status.h"
#include "common/tensor/batch.h"
#include "worker/train/compute_pool.h"

namespace cairn {

// The model that ends with this node of the graph: the layers that its output is computed from, with their names. A
// layer that shares another one's variables has variables of its own there, in the same order.
v1::Model ModelUpTo(const Graph& graph, int node);

struct OutputSearch {
  std::string layer;  // the first, in their order, whose output is not finite; empty: none is found
  // The layers before it that cannot be the end of a model, each with the reason.
  std::vector<std::string> passed_over;
};

// Of the layers' outputs for these examples. values: the parameter space.
OutputSearch FindNotFiniteOutput(Backend& backend, const JobModel& model, const Batch& examples,
                                 absl::Span<const float> values);

}  // namespace cairn
