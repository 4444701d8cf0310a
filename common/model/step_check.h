// The part of CheckJob that checks what makes up a step: accumulate_steps, compute_dtype and loss_scaling.
#pragma once

#include <cstdint>
#include <string>

#include "cairn/v1/job.pb.h"
#include "common/base/status.h"

namespace cairn {

// Fills in defaults. `spec`: its batch_size and replicas must be checked before. Errors: INVALID_ARGUMENT,
// `accumulate_steps: -1 is negative; use 1 or more`.
absl::Status ResolveStep(v1::JobSpec* spec);
// `examples`: the number in the training split of the data at `path`. The caller has checked that batch_size does not
// exceed it.
absl::Status CheckStepAgainstData(const v1::JobSpec& spec, int64_t examples, const std::string& path);
// For a process that gets the job from another one: whether its counts are those of a job that was checked, so that
// StepPlan::Of can plan it. Errors: INVALID_ARGUMENT names the field.
absl::Status CheckStepCounts(const v1::JobSpec& spec, uint64_t train_examples);

}  // namespace cairn
