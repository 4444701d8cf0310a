// libcairn_cudnn.so: the backend of NVIDIA GPUs, with CUDA, cuDNN and cuBLASLt.
#include "worker/backend/plugin.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/log.h"
#include "worker/backend/cudnn/cuda_machine.h"
#include "worker/backend/cudnn/device.h"
#include "worker/backend/cudnn/gpu_backend.h"
#include "worker/backend/cudnn/trial.h"

namespace cairn {
namespace {

// A device that computes correctly at the start can be trusted with jobs. The first one takes a second or two: the
// libraries load their kernels.
constexpr absl::Duration kTrialPatience = absl::Minutes(2);

absl::Status Try(const cudnn::DeviceInfo& device) {
  const cudnn::Precision precision{.type = cudnn::DType::kBFloat16};
  const auto trial = [&]() -> absl::Status {
    CAIRN_ASSIGN_OR_RETURN(const std::unique_ptr<cudnn::Machine> machine,
                           cudnn::MakeCudaMachine(device, precision, nullptr));
    return cudnn::TryMachine(*machine, precision, kTrialPatience);
  };
  const absl::Status status = trial();
  if (status.ok()) return status;
  return absl::UnavailableError(
      absl::StrCat("GPU ", device.index, " (", device.fingerprint, ") does not compute: ", status.message()));
}

// GPU `index` alone, or all usable GPUs of the model of the first one: another model computes other bits.
absl::StatusOr<std::vector<cudnn::DeviceInfo>> UsableDevices(int index) {
  std::vector<cudnn::DeviceInfo> devices;
  absl::Status trouble;  // the first
  for (int next = std::max(index, 0);; ++next) {
    absl::StatusOr<cudnn::DeviceInfo> device = cudnn::FindDevice(next);
    if (!device.ok()) {  // no more
      trouble.Update(device.status());
      break;
    }
    if (devices.empty() || device->fingerprint == devices.front().fingerprint) {
      if (const absl::Status tried = Try(*device); tried.ok()) {
        devices.push_back(*std::move(device));
      } else {
        LogWarning("%s", tried.message());
        trouble.Update(tried);
      }
    }
    if (index != kAllDevices) break;
  }
  if (devices.empty()) return trouble;
  return devices;
}

absl::StatusOr<std::unique_ptr<Backend>> MakeCudnnBackend(const PluginOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(std::vector<cudnn::DeviceInfo> devices, UsableDevices(options.device));
  cudnn::EnablePeers(devices);
  return cudnn::MakeGpuBackend(std::move(devices), options, &cudnn::MakeCudaMachine);
}

}  // namespace
}  // namespace cairn

extern "C" __attribute__((visibility("default"))) const cairn::Plugin* cairn_backend_plugin() {
  static const cairn::Plugin plugin{&cairn::PluginVersion, &cairn::MakeCudnnBackend};
  return &plugin;
}
