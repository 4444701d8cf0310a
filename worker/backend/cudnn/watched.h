// What a lost device costs: the programs on it, at once, and nothing else. And how long a step is waited for, until its
// device counts as lost.
#pragma once

#include <memory>

#include "absl/time/time.h"
#include "worker/backend/backend.h"
#include "worker/backend/cudnn/device_health.h"

namespace cairn::cudnn {

// The first step of a plan loads kernels, and times them with --cudnn-autotune: it may take this long.
inline constexpr absl::Duration kPatience = absl::Minutes(10);
// Of later steps: so many times the slowest of these before it, but at least a minute (others may use the device, too),
// and no longer than a first one.
inline constexpr int kPatienceFactor = 10;
inline constexpr absl::Duration kPatienceMin = absl::Minutes(1);

// first: of its plan. slowest: of the program's steps so far that were not the first, from when all of it was launched;
// 0: there was none.
absl::Duration StepPatience(bool first, absl::Duration slowest);

// The program, whose calls tell `health` how they end and are refused once the device is lost.
std::unique_ptr<Program> Watched(std::unique_ptr<Program> program, std::shared_ptr<DeviceHealth> health);

}  // namespace cairn::cudnn
