// Writes the model files of JobSpec.callbacks (model_checkpoint); the chief makes them from the step's checkpoint.
//
// Free functions, blocking (they read and write files); any thread.
#pragma once

#include "cairn/v1/cluster.pb.h"
#include "common/base/status.h"

namespace cairn {

// Replaces an existing file atomically. Errors: those of ReadCheckpoint, and of the file system, with the
// path.
absl::Status SaveModelFile(const v1::SaveModel& command);

}  // namespace cairn
