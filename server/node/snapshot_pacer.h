// SnapshotPacer: limits how fast snapshots leave a ps while there is other traffic.
//
// Thread-safe. Invariants: 1. Beside other traffic snapshots get a share of its bytes, or bytes_per_second_min if that
// is more. 2. Without other traffic they are not limited.
#pragma once

#include <cstddef>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace cairn {

// The rate of snapshots of all streams together while there is other traffic. A larger share: a checkpoint is written
// sooner, but takes more processor time and bandwidth from each concurrent step. At 1/16 the state of a job with
// momentum and two workers takes sixteen steps.
struct SnapshotPace {
  size_t free_bytes = 1 << 20;                   // unlimited first bytes: a small model's checkpoint is sent at once
  double share = 1.0 / 16;                       // bytes of snapshots for each byte of other traffic
  double bytes_per_second_min = 8 << 20;         // however little other traffic there is
  absl::Duration idle_after = absl::Seconds(1);  // no limit after this long without other traffic
};

class SnapshotPacer {
 public:
  // How often a waiting snapshot asks again.
  static constexpr absl::Duration kPoll = absl::Milliseconds(5);

  explicit SnapshotPacer(const SnapshotPace& pace) : pace_(pace) {}

  // Other traffic was sent: it earns waiting snapshots their share. `now`: of a steady clock.
  void NoteTraffic(size_t bytes, absl::Time now);
  // Zero: the snapshot's next chunk may be sent now, and is counted. Else: ask again after this time.
  absl::Duration WaitFor(size_t bytes, absl::Time now);

 private:
  const SnapshotPace pace_;
  absl::Mutex mutex_;
  absl::Time traffic_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();  // when anything but a snapshot was sent
  absl::Time wanted_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();   // when a snapshot's turn was asked for
  double earned_bytes_ ABSL_GUARDED_BY(mutex_) = 0;                       // snapshot bytes that may be sent
  absl::Time due_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();         // a chunk may be sent then in any case
};

}  // namespace cairn
