// From a job and the coordinator's cut of its parameter space to the configuration of one partition.
#pragma once

#include <memory>

#include "cairn/v1/cluster.pb.h"
#include "cairn/v1/job.pb.h"
#include "common/model/graph.h"
#include "server/core/partition_state.h"

namespace cairn {

// `spec` is resolved (JobCheck), `graph` is its model's. Errors: INVALID_ARGUMENT where the range does not fit the
// space, or the spec lacks what a resolved one has.
absl::StatusOr<PartitionConfig> MakePartitionConfig(const v1::JobSpec& spec, std::shared_ptr<const Graph> graph,
                                                    const v1::PartitionRange& range, JobId job, Generation generation);

}  // namespace cairn
