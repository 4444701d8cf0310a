// The open dimensions of a job's model, closed by the data set itself, where the job's fields do not say its shape.
//
// A free function; any thread.
#pragma once

#include "cairn/v1/job.pb.h"
#include "common/base/status.h"

namespace cairn {

// Opens the data set, but only if the model is open and no field closes it (common/formats/open_shape.h). Errors:
// INVALID_ARGUMENT the data is not here, or its shape does not fit; says what to do.
absl::Status CloseShapeByData(v1::JobSpec* spec);

}  // namespace cairn
