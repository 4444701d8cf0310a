// One partition of a PartitionHost, and the job that it belongs to. Only partition_host*.cc include this.
//
// Thread rule: config and lane never change; version, backup, in_memory, at_rest and failed are read anywhere; the rest
// belongs to the slot's lane.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "server/node/partition_host.h"

namespace cairn {

struct PartitionHost::Slot {
  PartitionConfig config;  // as it was loaded; the core's own copy follows later generations
  size_t lane = 0;
  std::atomic<uint64_t> version{0};
  std::atomic<bool> backup{false};
  std::atomic<bool> in_memory{false};  // its version is not on the disk yet
  std::atomic<bool> at_rest{false};    // PartitionCore::at_rest
  std::atomic<bool> failed{false};     // its store failed: what it had in memory is gone
  // On the executor only:
  std::unique_ptr<PartitionCore> core;  // null: not loaded, failed or removed
  absl::Status status;                  // why it is null
  bool image_queued = false;
  bool image_turn = false;                      // it has the turn of the queue of images
  bool image_failed = false;                    // the last one: that is said once
  uint64_t link_epoch = 0;                      // of the newest link, over all backups
  absl::Time wake_at = absl::InfiniteFuture();  // a timer is set for then
  enum class BackupImage { kNone, kQueued, kSending } backup_image = BackupImage::kNone;
  bool ended_image = false;  // it sends as a partition of an ended job; under the host's mutex
};

struct PartitionHost::Job {
  Generation generation;
  bool assigned = false;  // since this process started
  Slots slots;
  std::set<std::string> backups;  // addresses
  bool keep = false;              // HostPartitions.keep: `kept` is to be told
  bool kept_told = false;
  bool ended = false;   // HostPartitions.ended
  bool tidied = false;  // likewise, and the store was told to give back what its partitions need no more
};

}  // namespace cairn
