// DeviceWatch: when a worker that has lost its device ends itself. A fresh process gets a fresh context of the device,
// or finds at its trial that there is none; until then its jobs go on elsewhere.
//
// Of one thread. Invariants:
//   1. It ends at the earliest kTellFor after the loss: the coordinator was told, and takes the replicas away.
//   2. It ends when no replica is left, and kLeaveWithin after the loss whatever is left: nobody may be there to take
//      them, or to say so.
#pragma once

#include <optional>

#include "absl/time/time.h"
#include "common/base/status.h"

namespace cairn {

// What a worker ends with then: EX_TEMPFAIL, "try again". What started it should start it again.
inline constexpr int kExitDeviceLost = 75;

class DeviceWatch {
 public:
  static constexpr absl::Duration kLookEvery = absl::Seconds(1), kTellFor = absl::Seconds(2),
                                  kLeaveWithin = absl::Seconds(20);

  // Every kLookEvery. replicas: whether the worker has some still. True: it is to end now.
  bool Look(const absl::Status& health, bool replicas, absl::Time now) {
    if (health.ok()) return false;
    if (!lost_) lost_ = now;
    return now - *lost_ >= (replicas ? kLeaveWithin : kTellFor);
  }
  bool lost() const { return lost_.has_value(); }

 private:
  std::optional<absl::Time> lost_;  // seen
};

}  // namespace cairn
