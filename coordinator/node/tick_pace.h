// TickPace: decides when the core gets its next tick.
//
// A process that was stopped, or did not get a CPU, has received nothing in the meantime, and nodes' messages are
// waiting to be read. The tick is then postponed by a heartbeat interval, so that they are read before leases are
// checked.
//
// Not thread-safe. Invariant: no two ticks in a row are postponed: a machine that is always late must not postpone them
// for ever.
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

  // The time of a tick has come. Returns false if the tick is postponed.
  bool Due(absl::Time now) {
    gap_ = now - std::exchange(due_at_, now);
    put_off_ = !put_off_ && gap_ > gap_max_;
    return !put_off_;
  }
  // The time until the next call of Due.
  absl::Duration wait() const { return put_off_ ? put_off_by_ : interval_; }
  // The time between the last two calls of Due.
  absl::Duration gap() const { return gap_; }

 private:
  const absl::Duration interval_, put_off_by_, gap_max_;
  absl::Time due_at_;  // the last
  absl::Duration gap_;
  bool put_off_ = false;
};

}  // namespace cairn
