// PartitionRunner: carries out the effects that cores return.
#include <utility>

#include "common/base/log.h"
#include "server/node/partition_runner.h"

namespace cairn {
namespace {

// The delay after a link broke. The connection adds its own back-off before it opens a stream.
constexpr absl::Duration kReconnectDelay = absl::Milliseconds(50);

}  // namespace

// Runs between the core's step and writing to the store.
void PartitionRunner::CarryOut(const PartitionSlotPtr& slot, PartitionEffects& effects) {
  for (PeerSend& send : effects.sends) SendToBackup(slot, std::move(send));
  for (PartitionReply& reply : effects.replies) callbacks_.reply(reply.client, std::move(reply.frame));
  if (effects.image.has_value()) WriteImage(slot, *std::move(effects.image));
  if (effects.load) LoadValues(slot);
  for (v1::BackupReport& report : effects.reports) callbacks_.backup_report(std::move(report));
  if (effects.figures.has_value()) callbacks_.figures(*std::move(effects.figures));
  for (const std::string& address : effects.connect) ConnectBackup(slot, address);
  if (effects.wake_at.has_value()) WakeAt(slot, *effects.wake_at);
}

void PartitionRunner::WakeAt(const PartitionSlotPtr& slot, absl::Time at) {
  if (slot->wake_at <= at) return;
  slot->wake_at = at;
  executor_of(*slot).PostAfter(at - clock_.Now(), [this, slot] {
    slot->wake_at = absl::InfiniteFuture();
    Run(slot, TickEvent{backups_->Peers()});
  });
}

// ---- images and values in the store ----

void PartitionRunner::WriteImage(const PartitionSlotPtr& slot, Image image) {
  const bool has_turn = std::exchange(slot->image_turn, false);
  disk_->Post([this, slot, has_turn, config = slot->core->config(), image = std::move(image)] {
    const absl::Status status = persistence_.WriteImage(config, image);
    const uint64_t version = image.header.version();
    Post(slot, [this, slot, version, status] {
      const bool before = std::exchange(slot->image_failed, !status.ok());
      if (!status.ok()) callbacks_.image_failed(status);
      if (!status.ok() && !before) LogError("%s: image: %s", slot->config.Name(), status.ToString());
      Run(slot, ImageWrittenEvent{version, status.ok()});
    });
    if (has_turn) NextImage();
  });
}

// The caller has the turn and has finished its own image.
void PartitionRunner::NextImage() {
  const std::optional<PartitionSlotPtr> next = store_turns_.Next();
  if (!next) return;
  Post(*next, [this, slot = *next] {
    slot->image_queued = false;
    if (slot->core == nullptr) {
      NextImage();
    } else {
      Run(slot, TakeImageEvent{});
    }
  });
}

// Carries out PartitionEffects::load.
void PartitionRunner::LoadValues(const PartitionSlotPtr& slot) {
  disk_->Post([this, slot, config = slot->core->config()] {
    // Shared since it cannot be copied.
    auto state = std::make_shared<absl::StatusOr<PartitionState>>(persistence_.Recover(config));
    executor_of(*slot).Post([this, slot, state] {
      if (slot->core == nullptr) return;
      if (!state->ok()) return StorageFailed(slot, state->status());
      Run(slot, LoadedEvent{*std::move(*state)});
    });
  });
}

// ---- backups ----

void PartitionRunner::SendToBackup(const PartitionSlotPtr& slot, PeerSend send) {
  const uint64_t request_id = send.frames.front().request_id;
  auto done = [this, slot, address = send.address, epoch = send.epoch, request_id](absl::StatusOr<Frame> answer) {
    if (answer.ok()) answer->request_id = request_id;
    executor_of(*slot).Post([this, slot, address, epoch, answer = std::move(answer)]() mutable {
      OnBackupAnswer(slot, address, epoch, std::move(answer));
    });
  };
  backups_->Send(send.address, std::move(send.frames), std::move(done));
}

void PartitionRunner::OnBackupAnswer(const PartitionSlotPtr& slot, const std::string& address, uint64_t epoch,
                                     absl::StatusOr<Frame> answer) {
  if (slot->core == nullptr) return;
  if (answer.ok()) return Run(slot, PeerFrameEvent{address, epoch, *std::move(answer)});
  // Every request of a broken stream ends here; the first one is enough.
  for (const BackupLink& link : slot->core->links()) {
    if (link.address() != address || link.epoch() != epoch || link.stage() == BackupLink::Stage::kDown) continue;
    LogDebug("%s: backup %s: %s", slot->config.Name(), link.node(), answer.status().ToString());
    executor_of(*slot).PostAfter(kReconnectDelay, [this, slot, address] {
      if (slot->core != nullptr) ConnectBackup(slot, address);
    });
    return Run(slot, LinkDownEvent{address, epoch});
  }
}

// The first request on a stream opens it. If that fails, the link is down again.
void PartitionRunner::ConnectBackup(const PartitionSlotPtr& slot, const std::string& address) {
  Post(slot, [this, slot, address] {
    if (slot->core == nullptr || draining_.load()) return;
    for (const BackupLink& link : slot->core->links()) {
      if (link.address() != address || link.stage() != BackupLink::Stage::kDown) continue;
      return Run(slot, LinkUpEvent{address, ++slot->link_epoch});
    }
  });
}

void PartitionRunner::TendBackupImages(const PartitionSlotPtr& slot) {
  const absl::Time now = clock_.Now();
  const PartitionCore* core = slot->core.get();
  const BackupImageTurns::Change change =
      backup_turns_.Tend(slot, core != nullptr && core->image_to_send(now), core != nullptr && core->sending_image(),
                         core != nullptr && core->config().ended, now);
  if (change.pause > absl::ZeroDuration()) {
    executor_of(*slot).PostAfter(change.pause, [this] { GrantBackupImages(); });
  }
  if (change.any) GrantBackupImages();
}

void PartitionRunner::GrantBackupImages() {
  for (const PartitionSlotPtr& granted : backup_turns_.Grant(clock_.Now())) {
    Post(granted, [this, granted] {
      backup_turns_.Begin(granted);
      if (granted->core != nullptr) {
        Run(granted, SendImageEvent{});
      } else {
        TendBackupImages(granted);
      }
    });
  }
}

}  // namespace cairn
