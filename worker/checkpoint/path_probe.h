// Checks that this machine can write to a job's output paths before the job is accepted, rather than failing after
// hours of training. Any thread.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/remote_files.h"
#include "common/model/written_paths.h"

namespace cairn {

// Creates a file in the nearest existing directory and removes it again; creates no directory. An existing file is
// opened for writing and left unchanged. In a remote root a file is put beside it and removed. remote: null: every path
// is of this machine; until: of RemoteFiles::TryToWrite. Errors: PERMISSION_DENIED names the field, the problem and
// what to do; another machine may be able to write; of a remote root also UNAVAILABLE and the others of RemoteFiles.
absl::Status TryToWrite(const WrittenPath& written, RemoteFiles* remote = nullptr,
                        absl::Time until = absl::InfiniteFuture());

}  // namespace cairn
