#include "worker/backend/cudnn/gpu_backend.h"

#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "worker/backend/cudnn/join.h"
#include "worker/backend/cudnn/program.h"
#include "worker/backend/cudnn/watched.h"

namespace cairn::cudnn {
namespace {

class GpuBackend : public Backend {
 public:
  GpuBackend(std::vector<DeviceInfo> devices, const PluginOptions& options, MachineMaker make_machine)
      : devices_(std::move(devices)), make_machine_(std::move(make_machine)) {
    CAIRN_CHECK(!devices_.empty(), "a backend of no device");
    for (const DeviceInfo& device : devices_)
      health_.push_back(std::make_shared<DeviceHealth>(absl::StrCat("GPU ", device.index)));
    if (!options.autotune) return;
    tuning_file_ = std::make_unique<TuningFile>(options.tuning_file);
    tuner_ = std::make_unique<Tuner>(*tuning_file_,
                                     absl::StrCat(devices_.front().fingerprint, " driver ", devices_.front().driver));
  }

  std::string name() const override { return "cudnn"; }
  std::string device() const override {
    const DeviceInfo& first = devices_.front();
    const std::string text = absl::StrCat(first.name, " (", first.memory_bytes >> 20, " MiB)");
    if (devices_.size() == 1) return absl::StrCat("gpu:", first.index, ": ", text);
    return absl::StrCat("gpu:", first.index, "..", devices_.back().index, ": ", devices_.size(), " of ", text);
  }
  std::string fingerprint() const override { return devices_.front().fingerprint; }
  v1::Device kind() const override { return v1::GPU; }
  bool Computes(v1::DataType compute) const override {
    ProgramOptions options;
    options.compute = compute;
    return PrecisionOf(options).ok();
  }
  absl::Status health() const override {
    for (const auto& device : health_) CAIRN_RETURN_IF_ERROR(device->status());
    return absl::OkStatus();
  }
  int slots_default() const override { return static_cast<int>(devices_.size()); }

  bool joins() const override { return true; }
  absl::StatusOr<std::shared_ptr<GradientJoin>> Join(const std::shared_ptr<const Graph>& graph,
                                                     JoinOptions options) override {
    return DeviceJoin::Make(graph, std::move(options), join_memory_);
  }

  absl::StatusOr<std::unique_ptr<Program>> Compile(std::shared_ptr<const Graph> graph,
                                                   const ProgramOptions& options) override {
    thread_local const size_t seat = seats_.fetch_add(1);
    join_memory_->DropGone();
    CAIRN_ASSIGN_OR_RETURN(const Precision precision, PrecisionOf(options));
    if (tuner_ != nullptr && precision.deterministic && !said_.exchange(true)) {
      LogInfo(
          "--cudnn-autotune: not in this job: deterministic jobs take the engines that the heuristics name, on every "
          "worker the same; "
          "deterministic: false lets time decide");
    }
    Tuner* const tuner = precision.deterministic ? nullptr : tuner_.get();
    const size_t device = seat % devices_.size();
    const std::shared_ptr<DeviceHealth>& health = health_[device];
    CAIRN_RETURN_IF_ERROR(health->status());
    absl::StatusOr<std::unique_ptr<Program>> program =
        MakeOn(devices_[device], health, precision, tuner, std::move(graph), options);
    if (!program.ok()) return health->Note(program.status());
    return Watched(*std::move(program), health);
  }

 private:
  absl::StatusOr<std::unique_ptr<Program>> MakeOn(const DeviceInfo& device, const std::shared_ptr<DeviceHealth>& health,
                                                  const Precision& precision, Tuner* tuner,
                                                  std::shared_ptr<const Graph> graph,
                                                  const ProgramOptions& options) const {
    CAIRN_ASSIGN_OR_RETURN(std::unique_ptr<Machine> machine, make_machine_(device, precision, tuner));
    machine->Share(health);
    return MakeProgram(std::move(graph), options, precision, std::move(machine));
  }

  const std::vector<DeviceInfo> devices_;
  std::vector<std::shared_ptr<DeviceHealth>> health_;  // of each
  const MachineMaker make_machine_;
  std::unique_ptr<TuningFile> tuning_file_;
  std::unique_ptr<Tuner> tuner_;  // null without --cudnn-autotune
  const std::shared_ptr<JoinMemory> join_memory_ = std::make_shared<JoinMemory>();
  std::atomic<size_t> seats_ = 0;
  std::atomic<bool> said_ = false;
};

}  // namespace

std::unique_ptr<Backend> MakeGpuBackend(std::vector<DeviceInfo> devices, const PluginOptions& options,
                                        MachineMaker make_machine) {
  return std::make_unique<GpuBackend>(std::move(devices), options, std::move(make_machine));
}

}  // namespace cairn::cudnn
