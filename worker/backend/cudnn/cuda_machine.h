// CudaMachine: the Machine of a GPU: three streams (copies in, work, copies out), cuBLASLt, cuDNN.
//
// Used by one thread at a time, as every Machine. Each call first makes the device current on the calling thread.
#pragma once

#include <memory>

#include "worker/backend/cudnn/device.h"
#include "worker/backend/cudnn/machine.h"
#include "worker/backend/cudnn/tuning.h"

namespace cairn::cudnn {

// tuner: null: engines and algorithms are chosen by heuristics. It outlives the machine.
absl::StatusOr<std::unique_ptr<Machine>> MakeCudaMachine(const DeviceInfo& device, const Precision& precision,
                                                         Tuner* tuner);

}  // namespace cairn::cudnn
