// Whether this machine can write where a job wants to: tried before the job is accepted, rather than found out after
// hours. Any thread.
#pragma once

#include "absl/status/status.h"
#include "common/model/written_paths.h"

namespace cairn {

// Makes a file in the nearest directory that exists and removes it: nothing is left, and no directory is made. A file
// that exists is opened for writing and left as it is. Errors: PERMISSION_DENIED names the field, what is wrong and
// what to do; another machine may be able to.
absl::Status TryToWrite(const WrittenPath& written);

}  // namespace cairn
