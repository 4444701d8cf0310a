#include "coordinator/core/job_memory.h"

#include "absl/strings/str_format.h"
#include "coordinator/core/limits.h"

namespace cairn {

size_t MemoryOfSubmission(const CheckedJob& job, size_t spec_bytes) {
  return 3 * spec_bytes + job.graph.nodes().size() * kGraphNodeBytes;
}

absl::Status CheckRoomForJob(size_t kept, size_t needed) {
  if (kept + needed <= kJobSpecsBytesMax) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrFormat("the jobs that the coordinator keeps take %d KiB, and this one would take %d, of at most %d; "
                      "delete jobs that have ended with `cairn delete ID`, or wait until some have",
                      kept >> 10, needed >> 10, kJobSpecsBytesMax >> 10));
}

}  // namespace cairn
