// Follower: the backup side of one partition: the stream that feeds it, and the updates yet to be acknowledged.
//
// Not thread-safe; part of PartitionCore. Invariants:
//   1. Updates are taken from one stream only: the one that brought the image from which this copy started. A copy that
//      is new, demoted or restarted has no such stream, and asks for an image.
//   2. In one generation no image is taken from a stream older than that one: late frames of a broken stream never take
//      the copy back.
//   3. Each request gets one answer; an update is answered when it is kept as the job's durability requires.
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

  // A REPLICATE of the present generation. The caller answers with the error, if any.
  absl::Status TakeUpdate(uint64_t client, Frame& frame);
  // Returns the image with its last tensor, to replace the copy's state; it is acknowledged when it is in the store.
  // The caller answers with the error, if any.
  absl::StatusOr<std::optional<Image>> TakeImageTensor(uint64_t client, Frame frame);
  bool receiving() const { return receiver_.receiving(); }

  // Images of earlier generations are refused as such, so their streams do not restrict those of the present primary,
  // which may be older (a stream serves many partitions).
  void OnNewGeneration() { newest_ = 0; }
  // Everything up to `version` is kept: acknowledges it.
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
