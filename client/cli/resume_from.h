// Whoever names a job where the directory of a checkpoint belongs (resume_from=4, resume_from=lenet) is told what that
// job has: its newest checkpoint, or that it has none, where it would have written them, and what to do instead.
#pragma once

#include <functional>

#include "cairn/v1/job.pb.h"
#include "cairn/v1/job_status.pb.h"
#include "client/job_client.h"
#include "common/base/status.h"

namespace cairn {

using GetJobFn = std::function<absl::StatusOr<v1::JobStatus>(const JobRef&)>;

// refused: of CheckResumeFrom (job_file.h), or of a submission of `spec`, whose paths are absolute. get_job: asks the
// cluster, at most once. Returns `refused`, with what is known of the job that was meant.
absl::Status ExplainResumeFrom(const absl::Status& refused, const v1::JobSpec& spec, const GetJobFn& get_job);

}  // namespace cairn
