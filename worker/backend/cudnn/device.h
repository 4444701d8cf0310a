// Calls to CUDA and NVIDIA's libraries: their errors as statuses that say what failed; and the description of a device.
// Thread-safe.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <cudnn.h>

#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/backend/cudnn/machine.h"

namespace cairn::cudnn {

// OK, or the error with `what` ("cudaMalloc of 4096 bytes") before it. RESOURCE_EXHAUSTED if memory is short;
// UNAVAILABLE if there is no device or driver, or the device is lost to this process; else INTERNAL.
absl::Status FromCuda(cudaError_t error, const std::string& what);
// The same: UNIMPLEMENTED if the library does not support it, else INTERNAL.
absl::Status FromCudnn(cudnnStatus_t status, const std::string& what);
absl::Status FromCublas(cublasStatus_t status, const std::string& what);

// Describes device `index` of those that CUDA sees. Errors: UNAVAILABLE says which of driver, device or compute
// capability is missing.
absl::StatusOr<DeviceInfo> FindDevice(int index);
// Enables direct copies between the devices where the machine supports them; other copies go through the host.
void EnablePeers(const std::vector<DeviceInfo>& devices);

}  // namespace cairn::cudnn
