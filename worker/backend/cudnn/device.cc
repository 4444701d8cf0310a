#include "worker/backend/cudnn/device.h"

#include "absl/strings/str_cat.h"
#include "common/base/log.h"

namespace cairn::cudnn {
namespace {

// The kernels are compiled for this capability and newer ones.
constexpr int kCapabilityMin = 80;

std::string VersionText(int version) { return absl::StrCat(version / 1000, ".", version % 1000 / 10); }

}  // namespace

absl::Status FromCuda(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string message = absl::StrCat(what, ": ", cudaGetErrorName(error), ", ", cudaGetErrorString(error));
  switch (error) {
    case cudaErrorMemoryAllocation:
      return absl::ResourceExhaustedError(absl::StrCat(message, "; use fewer --slots or a smaller batch"));
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorStubLibrary: return absl::UnavailableError(message);
    // Every later call of this process returns the same error, whatever happens to the device.
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorContextIsDestroyed:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorExternalDevice:
    case cudaErrorUnknown:
      return absl::UnavailableError(
          absl::StrCat(message, "; the device is lost to this worker: start it again, and look at the driver's log"));
    default: return absl::InternalError(message);
  }
}

absl::Status FromCudnn(cudnnStatus_t status, const std::string& what) {
  if (status == CUDNN_STATUS_SUCCESS) return absl::OkStatus();
  char detail[512] = "";
  cudnnGetLastErrorString(detail, sizeof(detail));
  const std::string message = absl::StrCat(what, ": ", cudnnGetErrorString(status), detail[0] != 0 ? ", " : "", detail);
  // 3000 to 3999: not supported, for different reasons.
  if (status / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000) return absl::UnimplementedError(message);
  return absl::InternalError(message);
}

absl::Status FromCublas(cublasStatus_t status, const std::string& what) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  const std::string message =
      absl::StrCat(what, ": ", cublasLtGetStatusName(status), ", ", cublasLtGetStatusString(status));
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return absl::UnimplementedError(message);
  return absl::InternalError(message);
}

absl::StatusOr<DeviceInfo> FindDevice(int index) {
  int driver = 0, runtime = 0, count = 0;
  CAIRN_RETURN_IF_ERROR(FromCuda(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion"));
  CAIRN_RETURN_IF_ERROR(FromCuda(cudaDriverGetVersion(&driver), "cudaDriverGetVersion"));
  if (driver == 0) {
    return absl::UnavailableError("no NVIDIA driver on this machine (libcuda.so.1)");
  }
  if (driver / 1000 < runtime / 1000) {
    return absl::UnavailableError(absl::StrCat("the NVIDIA driver is too old: it knows CUDA ", VersionText(driver),
                                               ", this build needs ", VersionText(runtime),
                                               "; install a newer driver"));
  }
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess && error != cudaErrorNoDevice) {
    return absl::UnavailableError(FromCuda(error, "cudaGetDeviceCount").message());
  }
  if (count == 0) return absl::UnavailableError("the NVIDIA driver sees no GPU");
  if (index >= count) {
    return absl::UnavailableError(
        absl::StrCat("there is no GPU ", index, ": the driver sees ", count, ", counted from 0"));
  }
  cudaDeviceProp properties;
  CAIRN_RETURN_IF_ERROR(FromCuda(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties"));
  const int capability = properties.major * 10 + properties.minor;
  if (capability < kCapabilityMin) {
    return absl::UnavailableError(absl::StrCat(properties.name, " has compute capability ", properties.major, ".",
                                               properties.minor, "; ", kCapabilityMin / 10, ".", kCapabilityMin % 10,
                                               " or more is needed"));
  }
  DeviceInfo info;
  info.index = index;
  info.name = properties.name;
  info.driver = driver;
  info.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  info.fingerprint = absl::StrCat("cudnn ", cudnnGetVersion(), " cublaslt ", cublasLtGetVersion(), " cuda ", runtime,
                                  " ", properties.name, " sm_", capability, " ", properties.multiProcessorCount);
  return info;
}

void EnablePeers(const std::vector<DeviceInfo>& devices) {
  for (const DeviceInfo& to : devices) {
    for (const DeviceInfo& from : devices) {
      if (to.index == from.index) continue;
      int can = 0;
      absl::Status status = FromCuda(cudaDeviceCanAccessPeer(&can, to.index, from.index), "cudaDeviceCanAccessPeer");
      if (status.ok() && can != 0) {
        status = FromCuda(cudaSetDevice(to.index), "cudaSetDevice");
        const cudaError_t enabled = cudaDeviceEnablePeerAccess(from.index, 0);
        if (status.ok() && enabled != cudaErrorPeerAccessAlreadyEnabled)
          status = FromCuda(enabled, "cudaDeviceEnablePeerAccess");
      }
      cudaGetLastError();  // one that fails leaves the device usable
      if (!status.ok() || can == 0) {
        LogInfo("GPU %d does not reach GPU %d directly, sums go through the host%s%s", to.index, from.index,
                status.ok() ? "" : ": ", std::string(status.message()));
      }
    }
  }
}

}  // namespace cairn::cudnn
