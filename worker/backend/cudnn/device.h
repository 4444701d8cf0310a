// What every call into CUDA and NVIDIA's libraries goes through: their errors as statuses that say what was tried, and
// the device as the worker tells of it.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <cudnn.h>

#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/backend/cudnn/machine.h"

namespace cairn::cudnn {

// OK, or the error with `what` ("cudaMalloc of 4096 bytes") before it. RESOURCE_EXHAUSTED where memory is short,
// UNAVAILABLE where there is no device or driver, or the device is lost to this process, else INTERNAL.
absl::Status FromCuda(cudaError_t error, const std::string& what);
// UNIMPLEMENTED where the library has no way to do it, else INTERNAL.
absl::Status FromCudnn(cudnnStatus_t status, const std::string& what);
absl::Status FromCublas(cublasStatus_t status, const std::string& what);

// Device `index` of those that CUDA sees. Errors: UNAVAILABLE says which of driver, device or compute capability is
// missing.
absl::StatusOr<DeviceInfo> FindDevice(int index);
// Lets the devices copy from one another directly where the machine can; copies between the others go through the host.
void EnablePeers(const std::vector<DeviceInfo>& devices);

}  // namespace cairn::cudnn
