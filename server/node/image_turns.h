// ImageTurns: which partition's image is written to the store next, and which ones are sent to backups.
//
// Thread-safe. Invariants:
//   1. One image is copied and written at a time, except those that SNAPSHOT jobs take while they train.
//   2. At most kBackupImagesMax partitions send images to their backups at a time. Partitions of ended jobs come after
//      all others, one at a time, and use at most about a quarter of the time.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/node/partition_slot.h"

namespace cairn {

class StoreImageTurns {
 public:
  // True: no slot has the turn; the caller must call Next.
  bool Queue(PartitionSlotPtr slot);
  // The slot that has the turn now. Called by the holder when it is done, or after Queue returned true. nullopt: none.
  std::optional<PartitionSlotPtr> Next();

 private:
  absl::Mutex mutex_;
  std::deque<PartitionSlotPtr> due_ ABSL_GUARDED_BY(mutex_);
  bool taken_ ABSL_GUARDED_BY(mutex_) = false;
};

class BackupImageTurns {
 public:
  struct Change {
    bool any = false;      // Grant may return slots now
    absl::Duration pause;  // Grant may return slots after this time too
  };

  // Call after every event of the slot: it asks for its turn, or gives it back.
  // wants: a backup wants its image; sending: an image is in flight; ended: its job has ended.
  Change Tend(const PartitionSlotPtr& slot, bool wants, bool sending, bool ended, absl::Time now);
  // The slots that may send now. Call Begin for each when it does.
  std::vector<PartitionSlotPtr> Grant(absl::Time now);
  void Begin(const PartitionSlotPtr& slot);

 private:
  enum class State { kQueued, kGranted, kSending };
  struct Turn {
    State state = State::kQueued;
    bool ended = false;  // granted as a slot of an ended job
  };

  void GrantFirst(std::deque<PartitionSlotPtr>& due, bool ended, std::vector<PartitionSlotPtr>& granted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  std::map<PartitionSlotPtr, Turn> turns_ ABSL_GUARDED_BY(mutex_);
  std::deque<PartitionSlotPtr> due_ ABSL_GUARDED_BY(mutex_);
  std::deque<PartitionSlotPtr> ended_due_ ABSL_GUARDED_BY(mutex_);
  int granted_ ABSL_GUARDED_BY(mutex_) = 0;  // sending, or about to send
  bool ended_granted_ ABSL_GUARDED_BY(mutex_) = false;
  // With ended_granted_: when that was granted. Without: the earliest time of the next grant.
  absl::Time ended_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace cairn
