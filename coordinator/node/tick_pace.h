// TickPace: when the core gets its next tick, and whether this process was suspended before one.
//
// A process that was stopped, or that got no processor, has heard nobody meanwhile: what nodes said waits to be read.
// The tick is then put off by a heartbeat interval, so that their messages are read before their leases are checked.
//
// Not thread-safe. Invariant: no two ticks in a row are put off: a machine that is always late still ticks.
#pragma once

#include <algorithm>
#include <utility>

#include "absl/time/time.h"
#include "coordinator/core/options.h"

namespace cairn {

class TickPace {
 public:
  TickPace(const CoordinatorOptions& options, absl::Time now)
      : interval_(std::min(options.heartbeat_interval / 2, absl::Milliseconds(100))),
        put_off_by_(options.heartbeat_interval),
        gap_max_(options.lease / 2),
        due_at_(now) {}

  // The time of a tick has come. False: it is put off.
  bool Due(absl::Time now) {
    gap_ = now - std::exchange(due_at_, now);
    put_off_ = !put_off_ && gap_ > gap_max_;
    return !put_off_;
  }
  // From the last Due to the next.
  absl::Duration wait() const { return put_off_ ? put_off_by_ : interval_; }
  // Between the last two Dues.
  absl::Duration gap() const { return gap_; }

 private:
  const absl::Duration interval_, put_off_by_, gap_max_;
  absl::Time due_at_;  // the last
  absl::Duration gap_;
  bool put_off_ = false;
};

}  // namespace cairn
