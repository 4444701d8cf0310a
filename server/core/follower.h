// Follower: a backup's side of one partition: from whom it takes updates and images, and which it has yet to confirm.
//
// Not thread-safe; part of PartitionCore. Invariants:
//   1. Updates are taken from one stream alone: the one that brought the image that this copy started from. Any copy
//      that is new, was demoted or restarted has none, and asks for an image.
//   2. In one generation an image is taken from no stream older than that one: what a broken stream still brings never
//      takes the copy back.
//   3. Each request gets one answer; an update's when it is kept, as the job's durability asks.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "common/base/status.h"
#include "common/tensor/frame.h"
#include "server/core/backup_ack.h"
#include "server/core/partition_image.h"
#include "server/core/stored_images.h"
#include "server/core/updates.h"

namespace cairn {

class Follower {
 public:
  Follower(CopyContext& copy, const StoredImages& images, Updates& updates)
      : copy_(copy), images_(images), updates_(updates) {}

  // A REPLICATE of the present generation. Errors are to be answered.
  absl::Status TakeUpdate(uint64_t client, Frame& frame);
  // The image with its last tensor, to take the place of the copy's state; it is acknowledged when it is in the store.
  // Errors are to be answered.
  absl::StatusOr<std::optional<Image>> TakeImageTensor(uint64_t client, Frame frame);
  bool receiving() const { return receiver_.receiving(); }

  // Images of the former generation are refused for that: its primary's streams say nothing about those of the present
  // one, which may be older (a stream serves many partitions).
  void OnNewGeneration() { newest_ = 0; }
  // Everything up to `version` is kept.
  void GiveAcks(uint64_t version);
  void OnClientGone(uint64_t client);
  // The copy is no longer a backup, or becomes one again.
  void Reset();

 private:
  absl::Status CheckSource(uint64_t client) const;
  absl::Status CheckCanApply() const;
  absl::Status CheckUpdate(const Frame& frame, const v1::LogEntry& entry) const;
  void Acknowledge(const BackupAck& ack);

  CopyContext& copy_;
  const StoredImages& images_;
  Updates& updates_;
  uint64_t source_ = 0;  // 0: no image yet
  uint64_t newest_ = 0;  // the newest stream that brought a tensor
  ImageReceiver receiver_;
  std::deque<BackupAck> owed_;
};

}  // namespace cairn
