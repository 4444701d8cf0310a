// Restorer: the coordinator's Restore command: reads a checkpoint and fills a job's partitions, all at version 0, from
// it.
//
// Blocking; of a thread of its own kind. Repeating it does no harm: a partition that has the image already says so.
#pragma once

#include <atomic>

#include "cairn/v1/cluster.pb.h"
#include "common/base/status.h"

namespace cairn {

// Errors: what the checkpoint lacks (checkpoint_restore.h); FAILED_PRECONDITION a ps has been told of a newer
// generation, so that this command is superseded; UNAVAILABLE a ps does not answer; CANCELLED *stop was set.
absl::StatusOr<v1::RestoreReply> RestoreJob(const v1::Restore& command, const std::atomic<bool>& stop);

// What a job that is being checked takes from its checkpoint (InspectData.spec). steps_per_epoch: of the job's data.
absl::StatusOr<v1::CheckpointFacts> InspectCheckpoint(const v1::JobSpec& spec, int64_t steps_per_epoch);

}  // namespace cairn
