// One partition of a ps, shared by PartitionRunner and PartitionHost.
//
// Thread rule: lane never changes. config does not change either, except its generation: only the lane uses it, and
// sets it before it makes a core. version, backup, in_memory, at_rest and failed are read on any thread; the rest
// belongs to the slot's lane.
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
  std::atomic<bool> failed{false};     // its store failed: its state in memory is gone
  // On the lane only:
  std::unique_ptr<PartitionCore> core;  // null: not loaded, failed or removed
  absl::Status status;                  // why core is null
  bool image_queued = false;
  bool image_turn = false;                      // it holds the turn of StoreImageTurns
  bool image_failed = false;                    // the last image failed: this is reported once
  uint64_t link_epoch = 0;                      // of the newest link, across all backups
  absl::Time wake_at = absl::InfiniteFuture();  // a timer is set for then
};

using PartitionSlotPtr = std::shared_ptr<PartitionSlot>;

}  // namespace cairn
