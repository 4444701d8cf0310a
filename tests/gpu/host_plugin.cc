// A libcairn_cudnn.so without a GPU: the backend's own programs on the machine of the unit tests, whose kernels,
// products and convolutions are loops on the CPU (test_backend_select, gpu_digests_on_host). CAIRN_HOST_GPUS: how many
// devices it has, 1 if unset. CAIRN_HOST_GPU_LOST, CAIRN_HOST_GPU_HANGS, CAIRN_HOST_GPU_STUCK: after how many waits for
// results they are lost, end no step any more (which is said at once), or keep the thread for ever, as a call of CUDA
// may on a device that another thread has found to hang; never if unset.
#include <atomic>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/unit/backend/cudnn_host_machine.h"
#include "worker/backend/cudnn/gpu_backend.h"
#include "worker/backend/plugin.h"

namespace cairn {
namespace {

int64_t WaitsUntil(const char* trouble) {
  const char* named = std::getenv(trouble);
  int64_t waits = 0;
  return named != nullptr && absl::SimpleAtoi(named, &waits) ? waits : INT64_MAX;
}

class Losable : public cudnn::HostMachine {
 public:
  using HostMachine::HostMachine;
  absl::Status WaitFor(int signal, absl::Duration patience) override {
    static std::atomic<int64_t> until_lost = WaitsUntil("CAIRN_HOST_GPU_LOST"),
                                until_hung = WaitsUntil("CAIRN_HOST_GPU_HANGS");
    static std::atomic<int64_t> until_stuck = WaitsUntil("CAIRN_HOST_GPU_STUCK");
    if (until_lost.fetch_sub(1) <= 0) return absl::UnavailableError("a device of a test is lost");
    if (until_hung.fetch_sub(1) <= 0) return absl::DeadlineExceededError("a device of a test: a step does not end");
    if (until_stuck.fetch_sub(1) <= 0) {
      health()
          .Note(absl::DeadlineExceededError("a device of a test: another thread's step does not end"))
          .IgnoreError();
      absl::SleepFor(absl::InfiniteDuration());
    }
    return HostMachine::WaitFor(signal, patience);
  }
};

// Copies are late, so that one that is not waited for is noticed.
absl::StatusOr<std::unique_ptr<cudnn::Machine>> MakeHostMachine(const cudnn::DeviceInfo& device,
                                                                const cudnn::Precision& precision,
                                                                cudnn::Tuner* tuner) {
  return std::make_unique<Losable>(
      precision, cudnn::HostMachine::Copies::kLate, tuner,
      [](size_t way) -> absl::StatusOr<double> { return way == 0 ? 2.0 : 1.0; }, device.index);
}

absl::StatusOr<std::unique_ptr<Backend>> MakeHostBackend(const PluginOptions& options) {
  const char* named = std::getenv("CAIRN_HOST_GPUS");
  int count = 1;
  if (named != nullptr && (!absl::SimpleAtoi(named, &count) || count < 1)) {
    return absl::UnavailableError(absl::StrCat("CAIRN_HOST_GPUS: ", named, " is not a number of devices"));
  }
  std::vector<cudnn::DeviceInfo> devices;
  for (int i = 0; i < count; ++i) {
    if (options.device != kAllDevices && options.device != i) continue;
    devices.push_back({.index = i, .name = "none, loops on the CPU", .fingerprint = "cudnn on the host"});
  }
  if (devices.empty()) return absl::UnavailableError(absl::StrCat("there is no GPU ", options.device));
  return cudnn::MakeGpuBackend(std::move(devices), options, &MakeHostMachine);
}

}  // namespace
}  // namespace cairn

extern "C" const cairn::Plugin* cairn_backend_plugin() {
  static const cairn::Plugin plugin{&cairn::PluginVersion, &cairn::MakeHostBackend};
  return &plugin;
}
