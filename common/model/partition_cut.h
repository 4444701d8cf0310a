// Cuts a model's parameter space into partitions: as CutPartitions in step_plan.h, except that a variable whose update
// needs all its numbers (for the norm of a constraint, the orthogonal regularizer, or an optimizer such as Lamb) stays
// in one partition.
//
// Pure functions. Invariants of a cut: ranges cover the space in order; each begins at a multiple of kSpaceAlignment;
// none is larger than both partition_bytes and the largest such variable.
#pragma once

#include <cstdint>
#include <vector>

#include "cairn/v1/commands.pb.h"
#include "cairn/v1/optimizer.pb.h"
#include "common/base/status.h"
#include "common/model/graph.h"

namespace cairn {

// The optimizer must be resolved.
// Errors: INVALID_ARGUMENT names a variable that must be whole and is larger than kPartitionBytesMax.
absl::Status CheckWholeVariables(const Graph& graph, const v1::Optimizer& optimizer);
// Errors: INVALID_ARGUMENT names a variable that must be whole and is cut at an end of [begin, end).
absl::Status CheckWholeVariables(const Graph& graph, const v1::Optimizer& optimizer, int64_t begin, int64_t end);

std::vector<v1::PartitionRange> CutPartitions(const Graph& graph, const v1::Optimizer& optimizer,
                                              int64_t partition_bytes);

}  // namespace cairn
