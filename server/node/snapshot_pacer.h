// SnapshotPacer: how fast snapshots leave a ps beside other traffic.
//
// Thread-safe. Invariants: 1. Beside other traffic snapshots get its share of bytes, or bytes_per_second_min where that
// is more. 2. Without other traffic they are not held back.
#pragma once

#include <cstddef>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace cairn {

// What all streams together send of snapshots while there is other traffic. A larger share: a checkpoint is written
// sooner, and takes more of the processor and the network from each step beside it. At 1/16 the state of a job with
// momentum and two workers takes sixteen steps.
struct SnapshotPace {
  size_t free_bytes = 1 << 20;                   // the first ones of a checkpoint: a small model's are written at once
  double share = 1.0 / 16;                       // bytes of snapshots for each byte of anything else
  double bytes_per_second_min = 8 << 20;         // however little else there is
  absl::Duration idle_after = absl::Seconds(1);  // without other traffic for so long: as fast as can be
};

class SnapshotPacer {
 public:
  // A snapshot that waits for its turn asks again so often.
  static constexpr absl::Duration kPoll = absl::Milliseconds(5);

  explicit SnapshotPacer(const SnapshotPace& pace) : pace_(pace) {}

  // What is sent beside snapshots earns them their share, while there are any. `now` is of a clock that nobody sets.
  void NoteTraffic(size_t bytes, absl::Time now);
  // Zero: the snapshot's next chunk may be sent now, and counts. Else: ask again after so long.
  absl::Duration WaitFor(size_t bytes, absl::Time now);

 private:
  const SnapshotPace pace_;
  absl::Mutex mutex_;
  absl::Time traffic_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();  // when anything but a snapshot was sent
  absl::Time wanted_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();   // when a snapshot's turn was asked for
  double earned_bytes_ ABSL_GUARDED_BY(mutex_) = 0;                       // that may be sent
  absl::Time due_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();         // a chunk may go then in any case
};

}  // namespace cairn
