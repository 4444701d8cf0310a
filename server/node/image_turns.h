// ImageTurns: whose image is written next (one at a time), and whose image goes to its backups.
//
// Thread-safe. Invariants:
//   1. One image is copied and written at a time, but for those that SNAPSHOT jobs take while they train.
//   2. Images for backups are on their way for at most kBackupImagesMax partitions at a time. Those of ended jobs come
//      after all others, one at a time, and take up at most about a quarter of the time.
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
  // True: nobody has the turn; the caller is to call Next.
  bool Queue(PartitionSlotPtr slot);
  // Who has the turn now; called by the holder, or after Queue said so. nullopt: nobody.
  std::optional<PartitionSlotPtr> Next();

 private:
  absl::Mutex mutex_;
  std::deque<PartitionSlotPtr> due_ ABSL_GUARDED_BY(mutex_);
  bool taken_ ABSL_GUARDED_BY(mutex_) = false;
};

class BackupImageTurns {
 public:
  struct Change {
    bool any = false;      // Grant may have somebody
    absl::Duration pause;  // Grant may have somebody after so long, too
  };

  // After anything happened to the slot: it asks for its turn, or gives it back.
  // wants: a backup wants its image; sending: an image is on its way; ended: it is of a job that has ended.
  Change Tend(const PartitionSlotPtr& slot, bool wants, bool sending, bool ended, absl::Time now);
  // Who may send now. Each is to call Begin when it does.
  std::vector<PartitionSlotPtr> Grant(absl::Time now);
  void Begin(const PartitionSlotPtr& slot);

 private:
  enum class State { kQueued, kGranted, kSending };
  struct Turn {
    State state = State::kQueued;
    bool ended = false;  // it sends as one of an ended job
  };

  void GrantFirst(std::deque<PartitionSlotPtr>& due, bool ended, std::vector<PartitionSlotPtr>& granted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  std::map<PartitionSlotPtr, Turn> turns_ ABSL_GUARDED_BY(mutex_);
  std::deque<PartitionSlotPtr> due_ ABSL_GUARDED_BY(mutex_);
  std::deque<PartitionSlotPtr> ended_due_ ABSL_GUARDED_BY(mutex_);
  int granted_ ABSL_GUARDED_BY(mutex_) = 0;  // on their way, or about to be
  bool ended_granted_ ABSL_GUARDED_BY(mutex_) = false;
  // Since then one of an ended job is on its way; or, while there is none: not before.
  absl::Time ended_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace cairn
