// Restorer: carries out the coordinator's Restore command: reads a checkpoint and fills a job's partitions, all at
// version 0, from it.
//
// Blocking: runs on its own thread. remote: null: every path is of this machine. Idempotent: a partition that already
// has the image acknowledges it.
#pragma once

#include <atomic>

#include "cairn/v1/cluster.pb.h"
#include "common/base/remote_files.h"
#include "common/base/status.h"

namespace cairn {

// Errors: those of the checkpoint (checkpoint_restore.h); FAILED_PRECONDITION: a ps has a newer generation, which
// supersedes this command; UNAVAILABLE: a ps does not answer; CANCELLED: *stop was set.
absl::StatusOr<v1::RestoreReply> RestoreJob(const v1::Restore& command, const std::atomic<bool>& stop,
                                            RemoteFiles* remote);

// The fields that a job under check takes from its checkpoint (InspectData.spec). steps_per_epoch: of the job's data.
absl::StatusOr<v1::CheckpointFacts> InspectCheckpoint(const v1::JobSpec& spec, int64_t steps_per_epoch,
                                                      RemoteFiles* remote);

}  // namespace cairn
