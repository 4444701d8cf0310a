// Tries a device before the worker offers it to the cluster.
#pragma once

#include "absl/time/time.h"
#include "worker/backend/cudnn/machine.h"

namespace cairn::cudnn {

// Tries memory, copies, one of Cairn's kernels, a product and a convolution with known results, as launches and as a
// recording: so a broken installation fails here and not in the first step of a job. precision: that of the machine.
// Errors: those of the machine; INTERNAL says what was computed wrong; DEADLINE_EXCEEDED after `patience`.
absl::Status TryMachine(Machine& machine, const Precision& precision, absl::Duration patience);

}  // namespace cairn::cudnn
