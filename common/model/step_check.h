// What a step is made of, as a part of CheckJob: accumulate_steps, compute_dtype and loss_scaling.
#pragma once

#include <string>

#include "cairn/v1/job.pb.h"
#include "common/base/status.h"

namespace cairn {

// Fills in defaults. `spec`: batch_size and replicas are checked.
// Errors: INVALID_ARGUMENT, `accumulate_steps: -1 is negative; use 1 or more`.
absl::Status ResolveStep(v1::JobSpec* spec);
// `examples`: of the training split of the data at `path`; batch_size alone does not exceed it.
absl::Status CheckStepAgainstData(const v1::JobSpec& spec, int64_t examples, const std::string& path);

}  // namespace cairn
