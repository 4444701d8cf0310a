// PartitionHost: what cores want done outside of them, and the links to backups.
#include <utility>

#include "common/base/limits.h"
#include "common/base/log.h"
#include "server/node/partition_host.h"
#include "server/node/partition_slot.h"

namespace cairn {
namespace {

// After a link broke; the connection adds a back-off of its own before it opens a stream.
constexpr absl::Duration kReconnectDelay = absl::Milliseconds(50);
// After the image of an ended job, in times of what it took: jobs that train need the disks and the network more.
constexpr int kEndedImagePause = 3;

}  // namespace

// On the slot's executor, between the core's step and the store.
void PartitionHost::CarryOut(const std::shared_ptr<Slot>& slot, PartitionEffects& effects) {
  for (PeerSend& send : effects.sends) SendToBackup(slot, std::move(send));
  for (PartitionReply& reply : effects.replies) callbacks_.reply(reply.client, std::move(reply.frame));
  if (effects.image.has_value()) WriteImage(slot, *std::move(effects.image));
  if (effects.load) LoadValues(slot);
  for (v1::BackupReport& report : effects.reports) callbacks_.backup_report(std::move(report));
  if (effects.figures.has_value()) callbacks_.figures(*std::move(effects.figures));
  for (const std::string& address : effects.connect) ConnectBackup(slot, address);
  if (effects.wake_at.has_value()) WakeAt(slot, *effects.wake_at);
}

void PartitionHost::SendToBackup(const std::shared_ptr<Slot>& slot, PeerSend send) {
  const uint64_t request_id = send.frames.front().request_id;
  auto done = [this, slot, address = send.address, epoch = send.epoch, request_id](absl::StatusOr<Frame> answer) {
    if (answer.ok()) answer->request_id = request_id;
    lanes_[slot->lane].executor->Post([this, slot, address, epoch, answer = std::move(answer)]() mutable {
      OnBackupAnswer(slot, address, epoch, std::move(answer));
    });
  };
  backups_.Send(send.address, std::move(send.frames), std::move(done));
}

void PartitionHost::OnBackupAnswer(const std::shared_ptr<Slot>& slot, const std::string& address, uint64_t epoch,
                                   absl::StatusOr<Frame> answer) {
  if (slot->core == nullptr) return;
  if (answer.ok()) return Run(slot, PeerFrameEvent{address, epoch, *std::move(answer)});
  // Every request of a broken stream ends like this; the first one is enough.
  for (const BackupLink& link : slot->core->links()) {
    if (link.address() != address || link.epoch() != epoch || link.stage() == BackupLink::Stage::kDown) continue;
    LogDebug("%s: backup %s: %s", slot->config.Name(), link.node(), answer.status().ToString());
    lanes_[slot->lane].executor->PostAfter(kReconnectDelay, [this, slot, address] {
      if (slot->core != nullptr) ConnectBackup(slot, address);
    });
    return Run(slot, LinkDownEvent{address, epoch});
  }
}

// A stream is opened by the first request on it; where that fails, the link is down again.
void PartitionHost::ConnectBackup(const std::shared_ptr<Slot>& slot, const std::string& address) {
  lanes_[slot->lane].executor->Post([this, slot, address] {
    if (slot->core == nullptr || draining_.load()) return;
    for (const BackupLink& link : slot->core->links()) {
      if (link.address() != address || link.stage() != BackupLink::Stage::kDown) continue;
      return Run(slot, LinkUpEvent{address, ++slot->link_epoch});
    }
  });
}

void PartitionHost::WakeAt(const std::shared_ptr<Slot>& slot, absl::Time at) {
  if (slot->wake_at <= at) return;
  slot->wake_at = at;
  lanes_[slot->lane].executor->PostAfter(at - clock_.Now(), [this, slot] {
    slot->wake_at = absl::InfiniteFuture();
    Run(slot, TickEvent{backups_.Peers()});
  });
}

// After anything happened to the slot: it asks for its turn to send an image, or gives it back.
void PartitionHost::TendBackupImages(const std::shared_ptr<Slot>& slot) {
  using State = Slot::BackupImage;
  absl::Duration pause;
  bool news = false;
  {
    absl::MutexLock lock(&mutex_);
    if (slot->backup_image == State::kSending && (slot->core == nullptr || !slot->core->sending_image())) {
      slot->backup_image = State::kNone;
      --backup_images_;
      news = true;
      if (std::exchange(slot->ended_image, false)) {
        pause = kEndedImagePause * (clock_.Now() - ended_image_at_);
        ended_image_at_ = clock_.Now() + pause;
        ended_image_ = false;
      }
    }
    if (slot->backup_image == State::kNone && slot->core != nullptr && slot->core->image_to_send(clock_.Now())) {
      slot->backup_image = State::kQueued;
      news = true;
      (slot->core->config().ended ? ended_images_due_ : backup_images_due_).push_back(slot);
    }
  }
  if (pause > absl::ZeroDuration()) lanes_[slot->lane].executor->PostAfter(pause, [this] { GrantBackupImages(); });
  if (news) GrantBackupImages();
}

void PartitionHost::GrantBackupImages() {
  std::vector<std::shared_ptr<Slot>> next;
  {
    absl::MutexLock lock(&mutex_);
    while (backup_images_ < kBackupImagesMax && !backup_images_due_.empty()) {
      next.push_back(std::move(backup_images_due_.front()));
      backup_images_due_.pop_front();
      ++backup_images_;
    }
    if (backup_images_ < kBackupImagesMax && !ended_images_due_.empty() && !ended_image_ &&
        clock_.Now() >= ended_image_at_) {
      next.push_back(std::move(ended_images_due_.front()));
      ended_images_due_.pop_front();
      next.back()->ended_image = ended_image_ = true;
      ended_image_at_ = clock_.Now();
      ++backup_images_;
    }
  }
  for (const auto& granted : next) {
    lanes_[granted->lane].executor->Post([this, granted] {
      granted->backup_image = Slot::BackupImage::kSending;
      if (granted->core != nullptr) {
        Run(granted, SendImageEvent{});
      } else {
        TendBackupImages(granted);
      }
    });
  }
}

void PartitionHost::KeepConnections() {
  std::set<std::string> addresses;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [id, job] : jobs_) addresses.insert(job.backups.begin(), job.backups.end());
  }
  backups_.Keep(addresses);
}

}  // namespace cairn
