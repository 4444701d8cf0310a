// libcairn_cudnn.so: the backend of NVIDIA GPUs, with CUDA, cuDNN and cuBLASLt.
#include "worker/backend/plugin.h"

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/backend/cudnn/cuda_machine.h"
#include "worker/backend/cudnn/device.h"
#include "worker/backend/cudnn/program.h"

namespace cairn {
namespace {

// Thread-safe: each program has a machine of its own. A thread that compiles programs keeps to one device, the threads take the devices in
// turn: so the slots of a worker share out its GPUs. Programs of one device share its memory and take turns on it.
class CudnnBackend : public Backend {
 public:
  explicit CudnnBackend(std::vector<cudnn::DeviceInfo> devices) : devices_(std::move(devices)) {}

  std::string name() const override { return "cudnn"; }
  std::string device() const override {
    const cudnn::DeviceInfo& first = devices_.front();
    const std::string text = absl::StrCat(first.name, " (", first.memory_bytes >> 20, " MiB)");
    if (devices_.size() == 1) return absl::StrCat("gpu:", first.index, ": ", text);
    return absl::StrCat("gpu:", first.index, "..", devices_.back().index, ": ", devices_.size(), " of ", text);
  }
  std::string fingerprint() const override { return devices_.front().fingerprint; }
  int slots_default() const override { return static_cast<int>(devices_.size()); }

  absl::StatusOr<std::unique_ptr<Program>> Compile(std::shared_ptr<const Graph> graph, const ProgramOptions& options) override {
    thread_local const size_t seat = seats_.fetch_add(1);
    CAIRN_ASSIGN_OR_RETURN(const cudnn::Precision precision, cudnn::PrecisionOf(options));
    CAIRN_ASSIGN_OR_RETURN(std::unique_ptr<cudnn::Machine> machine,
                           cudnn::MakeCudaMachine(devices_[seat % devices_.size()], precision));
    return cudnn::MakeProgram(std::move(graph), options, precision, std::move(machine));
  }

 private:
  const std::vector<cudnn::DeviceInfo> devices_;  // of one model; not empty
  std::atomic<size_t> seats_ = 0;
};

absl::StatusOr<std::unique_ptr<Backend>> MakeCudnnBackend(int index) {
  std::vector<cudnn::DeviceInfo> devices;
  CAIRN_ASSIGN_OR_RETURN(cudnn::DeviceInfo first, cudnn::FindDevice(std::max(index, 0)));
  devices.push_back(std::move(first));
  // All of the first one's model: another model computes other bits.
  for (int next = 1; index == kAllDevices; ++next) {
    absl::StatusOr<cudnn::DeviceInfo> device = cudnn::FindDevice(next);
    if (!device.ok()) break;  // no more
    if (device->fingerprint == devices.front().fingerprint) devices.push_back(*std::move(device));
  }
  return std::make_unique<CudnnBackend>(std::move(devices));
}

}  // namespace
}  // namespace cairn

extern "C" __attribute__((visibility("default"))) const cairn::Plugin* cairn_backend_plugin() {
  static const cairn::Plugin plugin{&cairn::PluginVersion, &cairn::MakeCudnnBackend};
  return &plugin;
}
