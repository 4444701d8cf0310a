// Persistence: hosted jobs, base images and logs of a ps' partitions in its KvStore.
//
// Thread-safe as the store is; the calls for one partition come one at a time, but WriteImage may run beside Append.
// Grammar (numbers in keys big-endian, so that keys are in order; lengths in values little-endian):
//
//   key "c"                                                  the cluster's id:u64, xxh3:u64 of its bytes
//   key "j" job:u64                                          HostedJob, sealed
//   key "p" job:u64 partition:u32 "h" version:u64            PartitionImage, sealed
//   key "p" job:u64 partition:u32 "i" version:u64 tensor:u8  the image's tensors: 0 the values, then the slots; bytes
//   key "p" job:u64 partition:u32 "l" version:u64            LogEntry, sealed, then the gradient's bytes, in the type
//                                                            that it names
//   sealed = size:u32 xxh3:u64 message                       xxh3 of the message's bytes
//
// Invariants:
//   1. An image is one batch; a log entry is one batch, with the sequence number that it stands for (exactly once).
//   2. Log entries of a partition are consecutive and begin after its oldest image (or after version 0).
//   3. What an image at version i makes superfluous (older images, entries up to i) goes in the batch of a later entry:
//      a partition at version v > 0 can always be rebuilt at v - 1 as well. A SNAPSHOT job has no entries: its
//      images go as SuperfluousSnapshots says. With PartitionConfig::keep images reach the disk before WriteImage and
//      ResetTo return.
//   4. Every byte read is checked: a damaged one gets DATA_LOSS with job, partition and what was damaged.
//   5. ResetTo replaces everything that a partition has, in one batch. Its image, and the last one of a synchronous
//      SNAPSHOT job, may have the values of version - 1 as one more tensor.
//   6. Of an ended job (PartitionConfig::ended) so does WriteImage, with an image that has no slots: the final image.
#pragma once

#include <functional>
#include <vector>

#include "cairn/v1/cluster.pb.h"
#include "common/storage/kv_store.h"
#include "server/core/partition_core.h"
#include "server/core/partition_image.h"
#include "server/core/partition_state.h"

namespace cairn {

class Persistence {
 public:
  explicit Persistence(KvStore& store) : store_(store) {}

  // The cluster whose jobs these are; 0: none yet. Errors: DATA_LOSS.
  absl::StatusOr<uint64_t> ClusterId() const;
  absl::Status SetClusterId(uint64_t id);  // survives power loss

  // In order of job id.
  absl::StatusOr<std::vector<v1::HostPartitions>> ListHostedJobs() const;
  // Stores (or replaces) the assignment and deletes the job's partitions that it does not name. Survives power loss.
  absl::Status SetHostedJob(const v1::HostPartitions& host);
  // Deletes everything of the job. Fine where there is nothing.
  absl::Status DropJob(JobId job);

  // The partition as it was when the last Append returned; PartitionState::Initial where nothing is stored. Takes the
  // newest image that leaves at least one log entry to replay, so that state.previous is there too.
  // Errors: DATA_LOSS; FAILED_PRECONDITION where what is stored is of another shape than the configuration.
  absl::StatusOr<PartitionState> Recover(const PartitionConfig& config) const;
  // What a core begins with: the same; but of an ended job whose final image is there, the state at rest: no tensor is
  // read. So does a backup of an ended job that has nothing yet, at version 0.
  absl::StatusOr<PartitionState> Open(const PartitionConfig& config) const;

  // To which versions RollBack can take it.
  struct Reach {
    uint64_t version_min = 0;  // every version from here on, up to the present one
    // And these, ascending. Also the one before an image that came with the values before its update (a new backup's):
    // such a partition stays at the image's version and serves both; the update that the workers send once more is
    // known to it.
    std::vector<uint64_t> versions;
  };
  absl::StatusOr<Reach> ReachOf(const PartitionConfig& config, uint64_t version) const;
  // Forgets what is later than `version`: Recover then gives that version, or the image after it with the values before
  // (Reach). Survives power loss. Errors: FAILED_PRECONDITION it cannot be had.
  absl::Status RollBack(const PartitionConfig& config, uint64_t version);
  absl::Status Forget(const PartitionConfig& config);  // all that is stored of the partition
  // The image in place of all that is stored of the partition.
  absl::Status ResetTo(const PartitionConfig& config, const Image& image);

  absl::Status Append(const PartitionConfig& config, const Persist& persist);
  absl::Status WriteImage(const PartitionConfig& config, const Image& image);
  // The disk gets back the room of what the job has no more. Takes its time.
  absl::Status GiveBackSpace(JobId job);

 private:
  KvStore& store_;
};

// What PartitionRunner does with an event: steps the core, stores what it wants stored, tells it so, until there is no
// more. `carry_out` gets the effects of each step before anything is stored: what a backup gets is on its way while the
// log is written. It leaves `persists` and `reset` alone. After an error the core is ahead of the store: drop it and
// Recover.
absl::Status RunEvent(PartitionCore& core, Persistence& persistence, PartitionEvent event, absl::Time now,
                      const std::function<void(PartitionEffects&)>& carry_out);
// The same, with all effects gathered in their order.
absl::StatusOr<PartitionEffects> RunEvent(PartitionCore& core, Persistence& persistence, PartitionEvent event,
                                          absl::Time now);

}  // namespace cairn
