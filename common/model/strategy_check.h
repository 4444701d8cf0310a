// Checks how the replicas cooperate and who evaluates: CENTRAL_STORAGE, local_sync, validation_freq_steps,
// validation_by.
#pragma once

#include "cairn/v1/job.pb.h"
#include "cairn/v1/job_status.pb.h"
#include "common/base/status.h"

namespace cairn {

// strategy, replicas, optimizer and checkpoints must be checked and filled in before. Errors: INVALID_ARGUMENT, `field:
// what is wrong; what to do`.
absl::Status CheckStrategyOptions(const v1::JobSpec& spec);

// Checks what depends on the data.
absl::Status CheckStrategyAgainstData(const v1::JobSpec& spec, const v1::DataInfo& data);

// The number of groups of replicas that push as one is replicas / this number. 1 if each replica pushes by itself.
int32_t LocalSyncOf(const v1::JobSpec& spec);

}  // namespace cairn
