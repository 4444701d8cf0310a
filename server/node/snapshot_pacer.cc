#include "server/node/snapshot_pacer.h"

namespace cairn {

void SnapshotPacer::NoteTraffic(size_t bytes, absl::Time now) {
  absl::MutexLock lock(&mutex_);
  traffic_at_ = now;
  const bool wanted = now - wanted_at_ < pace_.idle_after;
  earned_bytes_ =
      wanted ? earned_bytes_ + pace_.share * static_cast<double>(bytes) : static_cast<double>(pace_.free_bytes);
}

absl::Duration SnapshotPacer::WaitFor(size_t bytes, absl::Time now) {
  absl::MutexLock lock(&mutex_);
  wanted_at_ = now;
  if (now - traffic_at_ >= pace_.idle_after) return absl::ZeroDuration();
  if (earned_bytes_ >= static_cast<double>(bytes)) {
    earned_bytes_ -= static_cast<double>(bytes);
  } else if (now < due_) {
    return kPoll;
  }
  due_ = now + absl::Seconds(static_cast<double>(bytes) / pace_.bytes_per_second_min);
  return absl::ZeroDuration();
}

}  // namespace cairn
