// The Backend of one or several GPUs of one model: which device a program is on, and what it may choose by time. Knows
// no library of NVIDIA's: the machines come from whoever makes it (plugin.cc; tests).
//
// Thread-safe: each program has a machine of its own. A thread that compiles programs keeps to one device, the threads
// take the devices in turn: so the slots of a worker share out its GPUs. Programs of one device share its memory and
// take turns on it. What a replica computes does not depend on the device: all are of one model, with one fingerprint.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "worker/backend/backend.h"
#include "worker/backend/cudnn/machine.h"
#include "worker/backend/cudnn/tuning.h"
#include "worker/backend/plugin_options.h"

namespace cairn::cudnn {

// tuner: null: engines by heuristics. It outlives the machine.
using MachineMaker = std::function<absl::StatusOr<std::unique_ptr<Machine>>(const DeviceInfo& device,
                                                                            const Precision& precision, Tuner* tuner)>;

// devices: not empty, of one fingerprint. The backend outlives its programs.
std::unique_ptr<Backend> MakeGpuBackend(std::vector<DeviceInfo> devices, const PluginOptions& options,
                                        MachineMaker make_machine);

}  // namespace cairn::cudnn
