// The cutting of a model's parameter space into partitions: as CutPartitions (step_plan.h), but a variable whose update
// needs all its numbers (the norm of a constraint, the orthogonal regularizer) lies in one partition.
//
// Pure functions. Invariants of a cut: ranges cover the space in order; each begins at a multiple of kSpaceAlignment;
// none is larger than partition_bytes and every such variable.
#pragma once

#include <cstdint>
#include <vector>

#include "cairn/v1/cluster.pb.h"
#include "common/base/status.h"
#include "common/model/graph.h"

namespace cairn {

// Errors: INVALID_ARGUMENT, a variable that must be whole is larger than kPartitionBytesMax; it is named.
absl::Status CheckWholeVariables(const Graph& graph);
// Errors: INVALID_ARGUMENT, a variable that must be whole is cut at an end of [begin, end).
absl::Status CheckWholeVariables(const Graph& graph, int64_t begin, int64_t end);

std::vector<v1::PartitionRange> CutPartitions(const Graph& graph, int64_t partition_bytes);

}  // namespace cairn
