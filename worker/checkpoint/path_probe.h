// Checks that this machine can write to a job's output paths before the job is accepted, rather than failing after
// hours of training. Any thread.
#pragma once

#include "absl/status/status.h"
#include "common/model/written_paths.h"

namespace cairn {

// Creates a file in the nearest existing directory and removes it again; creates no directory. An existing file is
// opened for writing and left unchanged. Errors: PERMISSION_DENIED names the field, the problem and
// what to do; another machine may be able to write.
absl::Status TryToWrite(const WrittenPath& written);

}  // namespace cairn
