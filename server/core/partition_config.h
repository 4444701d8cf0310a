// Makes the configuration of one partition from a job and the coordinator's partitioning of its parameter space.
#pragma once

#include <memory>

#include "cairn/v1/cluster.pb.h"
#include "cairn/v1/job.pb.h"
#include "common/model/graph.h"
#include "server/core/partition_state.h"

namespace cairn {

// `spec` is resolved (JobCheck), `graph` is its model's. Errors: INVALID_ARGUMENT, the range does not fit the space, or
// the spec is not resolved.
absl::StatusOr<PartitionConfig> MakePartitionConfig(const v1::JobSpec& spec, std::shared_ptr<const Graph> graph,
                                                    const v1::PartitionRange& range, JobId job, Generation generation);

}  // namespace cairn
