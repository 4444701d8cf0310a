// About how much of the coordinator's memory jobs take.
//
// Pure functions; any thread.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "common/model/job_check.h"

namespace cairn {

// A submission until it is a job: its spec and that of the job, and a graph with the layers of the spec once more.
// spec_bytes: Job::spec_bytes.
size_t MemoryOfSubmission(const CheckedJob& job, size_t spec_bytes);

// kept: of all jobs and submissions; needed: of one more. Errors: RESOURCE_EXHAUSTED: there is no room for it.
absl::Status CheckRoomForJob(size_t kept, size_t needed);

}  // namespace cairn
