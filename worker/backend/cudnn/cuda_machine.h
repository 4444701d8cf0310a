// CudaMachine: the Machine of a GPU: two streams (work; copies out), cuBLASLt, cuDNN.
//
// As every Machine of one thread at a time. Whatever thread calls, the device is made current first.
#pragma once

#include <memory>

#include "worker/backend/cudnn/device.h"
#include "worker/backend/cudnn/machine.h"

namespace cairn::cudnn {

absl::StatusOr<std::unique_ptr<Machine>> MakeCudaMachine(const DeviceInfo& device, const Precision& precision);

}  // namespace cairn::cudnn
