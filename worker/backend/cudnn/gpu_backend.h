// The Backend of one or several GPUs of one model. It decides which device a program runs on, and whether its engines
// are chosen by time. It uses no library of NVIDIA's: its creator provides the machines (plugin.cc; tests).
//
// Thread-safe: each program has a machine of its own. All programs of one thread are on one device, and threads take
// the devices in turn; so the slots of a worker are spread over its GPUs. The programs of a device share its memory and
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

// tuner: null: engines are chosen by heuristics. It outlives the machine.
using MachineMaker = std::function<absl::StatusOr<std::unique_ptr<Machine>>(const DeviceInfo& device,
                                                                            const Precision& precision, Tuner* tuner)>;

// devices: at least one, all with the same fingerprint. The backend outlives its programs.
std::unique_ptr<Backend> MakeGpuBackend(std::vector<DeviceInfo> devices, const PluginOptions& options,
                                        MachineMaker make_machine);

}  // namespace cairn::cudnn
