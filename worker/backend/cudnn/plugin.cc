// libcairn_cudnn.so: the backend of NVIDIA GPUs, with CUDA, cuDNN and cuBLASLt.
#include "worker/backend/plugin.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "worker/backend/cudnn/cuda_machine.h"
#include "worker/backend/cudnn/device.h"
#include "worker/backend/cudnn/gpu_backend.h"

namespace cairn {
namespace {

absl::StatusOr<std::unique_ptr<Backend>> MakeCudnnBackend(const PluginOptions& options) {
  std::vector<cudnn::DeviceInfo> devices;
  CAIRN_ASSIGN_OR_RETURN(cudnn::DeviceInfo first, cudnn::FindDevice(std::max(options.device, 0)));
  devices.push_back(std::move(first));
  // All of the first one's model: another model computes other bits.
  for (int next = 1; options.device == kAllDevices; ++next) {
    absl::StatusOr<cudnn::DeviceInfo> device = cudnn::FindDevice(next);
    if (!device.ok()) break;  // no more
    if (device->fingerprint == devices.front().fingerprint) devices.push_back(*std::move(device));
  }
  cudnn::EnablePeers(devices);
  return cudnn::MakeGpuBackend(std::move(devices), options, &cudnn::MakeCudaMachine);
}

}  // namespace
}  // namespace cairn

extern "C" __attribute__((visibility("default"))) const cairn::Plugin* cairn_backend_plugin() {
  static const cairn::Plugin plugin{&cairn::PluginVersion, &cairn::MakeCudnnBackend};
  return &plugin;
}
