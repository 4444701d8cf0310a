// The check of how the replicas work together and who evaluates: CENTRAL_STORAGE, local_sync, validation_freq_steps,
// validation_by.
#pragma once

#include "cairn/v1/job.pb.h"
#include "cairn/v1/job_status.pb.h"
#include "common/base/status.h"

namespace cairn {

// strategy, replicas, optimizer and checkpoints are checked, and filled in, before. Errors: INVALID_ARGUMENT,
// `field: what is wrong; what to do`.
absl::Status CheckStrategyOptions(const v1::JobSpec& spec);

// What needs the data.
absl::Status CheckStrategyAgainstData(const v1::JobSpec& spec, const v1::DataInfo& data);

// The replicas of a job in groups that push as one: replicas / this many. 1 where each is on its own.
int32_t LocalSyncOf(const v1::JobSpec& spec);

}  // namespace cairn
