// Writes the model files of JobSpec.callbacks (model_checkpoint); the chief makes them from the step's checkpoint.
//
// Free functions, blocking (they read and write files); any thread.
#pragma once

#include "cairn/v1/cluster.pb.h"
#include "common/base/remote_files.h"
#include "common/base/status.h"

namespace cairn {

// Replaces an existing file atomically. remote: null: every path is of this machine. Errors: those of ReadCheckpoint,
// and of the file system or the remote root, with the path.
absl::Status SaveModelFile(const v1::SaveModel& command, RemoteFiles* remote = nullptr);

}  // namespace cairn
