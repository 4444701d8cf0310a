// The trial of a device: whether it computes at all, before a worker promises it to a cluster.
#pragma once

#include "absl/time/time.h"
#include "worker/backend/cudnn/machine.h"

namespace cairn::cudnn {

// Memory, copies, a kernel of ours, a product and a convolution whose results are known, as launches and as a
// recording. What a broken installation fails at in the first step of a job, it fails at here. `precision`: the
// machine's. Errors: the machine's; INTERNAL says what was computed wrong; DEADLINE_EXCEEDED after `patience`.
absl::Status TryMachine(Machine& machine, const Precision& precision, absl::Duration patience);

}  // namespace cairn::cudnn
