// One partition of a ps, as PartitionRunner and PartitionHost share it.
//
// Thread rule: lane never changes, and of config only the generation, which the lane writes before it makes a core and
// nobody else reads; version, backup, in_memory, at_rest and failed are read anywhere; the rest belongs to the slot's
// lane.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/time/time.h"
#include "common/base/status.h"
#include "server/core/partition_core.h"

namespace cairn {

struct PartitionSlot {
  PartitionConfig config;  // as it was loaded; the core's own copy follows later generations
  size_t lane = 0;
  std::atomic<uint64_t> version{0};
  std::atomic<bool> backup{false};
  std::atomic<bool> in_memory{false};  // its version is not on the disk yet
  std::atomic<bool> at_rest{false};    // PartitionCore::at_rest
  std::atomic<bool> failed{false};     // its store failed: what it had in memory is gone
  // On the lane only:
  std::unique_ptr<PartitionCore> core;  // null: not loaded, failed or removed
  absl::Status status;                  // why it is null
  bool image_queued = false;
  bool image_turn = false;                      // it has the turn of the queue of images
  bool image_failed = false;                    // the last one: that is said once
  uint64_t link_epoch = 0;                      // of the newest link, over all backups
  absl::Time wake_at = absl::InfiniteFuture();  // a timer is set for then
};

using PartitionSlotPtr = std::shared_ptr<PartitionSlot>;

}  // namespace cairn
