#include "server/node/image_turns.h"

#include <utility>

#include "common/base/limits.h"

namespace cairn {
namespace {

// The pause after the image of an ended job, as a multiple of the time that it took: jobs in training need the disks
// and the network more.
constexpr int kEndedImagePause = 3;

}  // namespace

bool StoreImageTurns::Queue(PartitionSlotPtr slot) {
  absl::MutexLock lock(&mutex_);
  due_.push_back(std::move(slot));
  return !std::exchange(taken_, true);
}

std::optional<PartitionSlotPtr> StoreImageTurns::Next() {
  absl::MutexLock lock(&mutex_);
  taken_ = !due_.empty();
  if (!taken_) return std::nullopt;
  PartitionSlotPtr slot = std::move(due_.front());
  due_.pop_front();
  return slot;
}

BackupImageTurns::Change BackupImageTurns::Tend(const PartitionSlotPtr& slot, bool wants, bool sending, bool ended,
                                                absl::Time now) {
  absl::MutexLock lock(&mutex_);
  Change change;
  auto turn = turns_.find(slot);
  if (turn != turns_.end() && turn->second.state == State::kSending && !sending) {
    if (turn->second.ended) {
      change.pause = kEndedImagePause * (now - ended_at_);
      ended_at_ = now + change.pause;
      ended_granted_ = false;
    }
    turns_.erase(turn);
    turn = turns_.end();
    --granted_;
    change.any = true;
  }
  if (turn == turns_.end() && wants) {
    turns_[slot] = {};
    (ended ? ended_due_ : due_).push_back(slot);
    change.any = true;
  }
  return change;
}

void BackupImageTurns::GrantFirst(std::deque<PartitionSlotPtr>& due, bool ended,
                                  std::vector<PartitionSlotPtr>& granted) {
  turns_[due.front()] = {State::kGranted, ended};
  granted.push_back(std::move(due.front()));
  due.pop_front();
  ++granted_;
}

std::vector<PartitionSlotPtr> BackupImageTurns::Grant(absl::Time now) {
  absl::MutexLock lock(&mutex_);
  std::vector<PartitionSlotPtr> granted;
  while (granted_ < kBackupImagesMax && !due_.empty()) GrantFirst(due_, /*ended=*/false, granted);
  if (granted_ < kBackupImagesMax && !ended_due_.empty() && !ended_granted_ && now >= ended_at_) {
    GrantFirst(ended_due_, /*ended=*/true, granted);
    ended_granted_ = true;
    ended_at_ = now;
  }
  return granted;
}

void BackupImageTurns::Begin(const PartitionSlotPtr& slot) {
  absl::MutexLock lock(&mutex_);
  turns_[slot].state = State::kSending;
}

}  // namespace cairn
