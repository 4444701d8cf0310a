// Model files of JobSpec.callbacks (model_checkpoint), made by the chief from the checkpoint of the same step.
//
// Free functions, blocking (they read and write files); any thread.
#pragma once

#include "cairn/v1/cluster.pb.h"
#include "common/base/status.h"

namespace cairn {

// Takes the place of a file that is there, whole. Errors: those of ReadCheckpoint; what the file system says, with the
// path.
absl::Status SaveModelFile(const v1::SaveModel& command);

}  // namespace cairn
