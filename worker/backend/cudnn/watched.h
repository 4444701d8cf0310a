// Makes the programs of a lost device fail at once; and says how long a program waits for a step before its device
// counts as lost.
#pragma once

#include <memory>

#include "absl/time/time.h"
#include "worker/backend/backend.h"
#include "worker/backend/cudnn/device_health.h"

namespace cairn::cudnn {

// The first step of a plan loads kernels, and times them with --cudnn-autotune: it may take this long.
inline constexpr absl::Duration kPatience = absl::Minutes(10);
// A later step may take this many times as long as the slowest of those before it, but at least a minute (others may
// use the device, too), and no longer than a first one.
inline constexpr int kPatienceFactor = 10;
inline constexpr absl::Duration kPatienceMin = absl::Minutes(1);

// How long to wait for a step. first: it is the first one of its plan. slowest: the longest time of the program's other
// steps so far, each from when all of it was launched; 0: none yet.
absl::Duration StepPatience(bool first, absl::Duration slowest);

// Wraps the program: its calls note in `health` how they end, and are refused once the device is lost.
std::unique_ptr<Program> Watched(std::unique_ptr<Program> program, std::shared_ptr<DeviceHealth> health);

}  // namespace cairn::cudnn
