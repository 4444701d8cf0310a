// RestoredCheckpoint: the state that a worker restores at a primary (IMAGE); it replaces the copy's whole state.
//
// Not thread-safe; part of PartitionCore. Invariants:
//   1. It is accepted only in the present generation: the coordinator asked for it, and raises the generation before
//      and after it. Which state it replaces does not matter.
//   2. It is acknowledged when it is in the store.
#pragma once

#include <cstdint>
#include <optional>

#include "common/base/status.h"
#include "common/tensor/frame.h"
#include "server/core/backup_ack.h"
#include "server/core/partition_image.h"
#include "server/core/replication.h"
#include "server/core/stored_images.h"
#include "server/core/updates.h"

namespace cairn {

class RestoredCheckpoint {
 public:
  RestoredCheckpoint(CopyContext& copy, const StoredImages& images, const Updates& updates,
                     const Replication& replication)
      : copy_(copy), images_(images), updates_(updates), replication_(replication) {}

  // Returns the image with its last tensor. The caller answers with the error, if any.
  absl::StatusOr<std::optional<Image>> TakeTensor(uint64_t client, Frame frame);
  // The restored state is in the store.
  void OnReset();
  bool receiving() const { return receiver_.receiving(); }
  void OnClientGone(uint64_t client);
  void EndTraining() { receiver_.Forget(); }

 private:
  CopyContext& copy_;
  const StoredImages& images_;
  const Updates& updates_;
  const Replication& replication_;
  ImageReceiver receiver_;
  std::optional<BackupAck> owed_;  // sent when the state is in the store
};

}  // namespace cairn
