// DeviceWatch: decides when a worker that has lost its device exits. A new process gets a new context on the device, or
// finds at start that there is none; meanwhile the worker's jobs continue on other workers.
//
// Not thread-safe. Invariants:
//   1. The worker exits no earlier than kTellFor after the loss: the coordinator hears of it and moves the replicas.
//   2. It exits once it has no replicas, and at the latest kLeaveWithin after the loss, since there may be no other
//      worker to take them, or no coordinator.
#pragma once

#include <optional>

#include "absl/time/time.h"
#include "common/base/status.h"

namespace cairn {

// The exit code in that case: EX_TEMPFAIL, "try again". The supervisor should restart the worker.
inline constexpr int kExitDeviceLost = 75;

class DeviceWatch {
 public:
  static constexpr absl::Duration kLookEvery = absl::Seconds(1), kTellFor = absl::Seconds(2),
                                  kLeaveWithin = absl::Seconds(20);

  // Call every kLookEvery. replicas: whether the worker still has any. True: exit now.
  bool Look(const absl::Status& health, bool replicas, absl::Time now) {
    if (health.ok()) return false;
    if (!lost_) lost_ = now;
    return now - *lost_ >= (replicas ? kLeaveWithin : kTellFor);
  }
  bool lost() const { return lost_.has_value(); }

 private:
  std::optional<absl::Time> lost_;  // when the loss was noticed
};

}  // namespace cairn
