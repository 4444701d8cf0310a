// libcairn_cudnn.so: the backend of an NVIDIA GPU, with CUDA, cuDNN and cuBLASLt.
#include "worker/backend/plugin.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/backend/cudnn/cuda_machine.h"
#include "worker/backend/cudnn/device.h"
#include "worker/backend/cudnn/program.h"

namespace cairn {
namespace {

// Thread-safe: each program has a machine of its own. Programs of one device share its memory and take turns on it.
class CudnnBackend : public Backend {
 public:
  explicit CudnnBackend(cudnn::DeviceInfo device) : device_(std::move(device)) {}

  std::string name() const override { return "cudnn"; }
  std::string device() const override {
    return absl::StrCat("gpu:", device_.index, ": ", device_.name, " (", device_.memory_bytes >> 20, " MiB)");
  }
  std::string fingerprint() const override { return device_.fingerprint; }
  int slots_default() const override { return 1; }

  absl::StatusOr<std::unique_ptr<Program>> Compile(std::shared_ptr<const Graph> graph, const ProgramOptions& options) override {
    CAIRN_ASSIGN_OR_RETURN(const cudnn::Precision precision, cudnn::PrecisionOf(options));
    CAIRN_ASSIGN_OR_RETURN(std::unique_ptr<cudnn::Machine> machine, cudnn::MakeCudaMachine(device_, precision));
    return cudnn::MakeProgram(std::move(graph), options, precision, std::move(machine));
  }

 private:
  const cudnn::DeviceInfo device_;
};

absl::StatusOr<std::unique_ptr<Backend>> MakeCudnnBackend(int index) {
  CAIRN_ASSIGN_OR_RETURN(cudnn::DeviceInfo device, cudnn::FindDevice(index));
  return std::make_unique<CudnnBackend>(std::move(device));
}

}  // namespace
}  // namespace cairn

extern "C" __attribute__((visibility("default"))) const cairn::Plugin* cairn_backend_plugin() {
  static const cairn::Plugin plugin{&cairn::PluginVersion, &cairn::MakeCudnnBackend};
  return &plugin;
}
