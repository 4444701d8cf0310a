// Persistence: hosted jobs, base images and logs of a ps' partitions in its KvStore.
//
// As thread-safe as the store. Calls for one partition must come one at a time, except that WriteImage may run
// concurrently with Append.
// Grammar (numbers in keys big-endian, so that keys are in order; lengths in values little-endian):
//
//   key "c"                                                  the cluster's id:u64, xxh3:u64 of its bytes
//   key "j" job:u64                                          HostedJob, sealed
//   key "p" job:u64 partition:u32 "h" version:u64            PartitionImage, sealed
//   key "p" job:u64 partition:u32 "i" version:u64 tensor:u8  the image's tensors: 0 the values, then the slots; bytes
//   key "p" job:u64 partition:u32 "l" version:u64            LogEntry, sealed, then the gradient's bytes, in the
//                                                            entry's type
//   sealed = size:u32 xxh3:u64 message                       xxh3 of the message's bytes
//
// Invariants:
//   1. An image is one batch; a log entry is one batch, which includes its sequence numbers (exactly once).
//   2. Log entries of a partition are consecutive and begin after its oldest image (or after version 0).
//   3. What an image at version i makes superfluous (older images, entries up to i) is deleted in the batch of a later
//      entry: a partition at version v > 0 can always be rebuilt at v - 1 as well. A SNAPSHOT job has no entries: its
//      images are deleted by SuperfluousSnapshots. With PartitionConfig::keep images are synced to disk before
//      WriteImage and ResetTo return.
//   4. Every byte read is checked: damaged data gets DATA_LOSS with job, partition and what was damaged.
//   5. ResetTo replaces everything that a partition has, in one batch. Its image, and the last one of a synchronous
//      SNAPSHOT job, may have the values of version - 1 as an additional tensor.
//   6. For an ended job (PartitionConfig::ended) so does WriteImage, with an image without slots: the final image.
#pragma once

#include <functional>
#include <vector>

#include "cairn/v1/cluster.pb.h"
#include "common/base/trace.h"
#include "common/storage/kv_store.h"
#include "server/core/partition_core.h"
#include "server/core/partition_image.h"
#include "server/core/partition_state.h"

namespace cairn {

class Persistence {
 public:
  explicit Persistence(KvStore& store) : store_(store) {}

  // The cluster to which the stored jobs belong; 0: none yet. Errors: DATA_LOSS.
  absl::StatusOr<uint64_t> ClusterId() const;
  absl::Status SetClusterId(uint64_t id);  // survives power loss

  // In order of job id.
  absl::StatusOr<std::vector<v1::HostPartitions>> ListHostedJobs() const;
  // Stores (or replaces) the assignment and deletes the job's partitions that it does not name. Survives power loss.
  absl::Status SetHostedJob(const v1::HostPartitions& host);
  // Deletes everything of the job. OK if there is nothing.
  absl::Status DropJob(JobId job);

  // The partition as of the last Append that returned; PartitionState::Initial if nothing is stored. Starts from the
  // newest image that leaves at least one log entry to replay, so that the previous values are there too.
  // Errors: DATA_LOSS; FAILED_PRECONDITION, the stored data has another shape than the configuration.
  absl::StatusOr<PartitionState> Recover(const PartitionConfig& config) const;
  // The state with which a core begins: as Recover, except for an ended job. If its final image is there, the state is
  // at rest and no tensor is read; a backup of an ended job with nothing stored is at rest at version 0.
  absl::StatusOr<PartitionState> Open(const PartitionConfig& config) const;

  // The versions to which RollBack can take a partition.
  struct Reach {
    uint64_t version_min = 0;  // every version from here on, up to the present one
    // And these, ascending. They include the version before an image that came with its previous values (as of a new
    // backup): such a partition stays at the image's version and serves both; it recognizes the repeated update of the
    // workers as a duplicate.
    std::vector<uint64_t> versions;
  };
  absl::StatusOr<Reach> ReachOf(const PartitionConfig& config, uint64_t version) const;
  // Deletes everything later than `version`: Recover then returns that version, or the image after it with its previous
  // values (Reach). Survives power loss. Errors: FAILED_PRECONDITION, the version is out of reach.
  absl::Status RollBack(const PartitionConfig& config, uint64_t version);
  absl::Status Forget(const PartitionConfig& config);  // deletes everything of the partition
  // Replaces everything of the partition by the image.
  absl::Status ResetTo(const PartitionConfig& config, const Image& image);

  absl::Status Append(const PartitionConfig& config, const Persist& persist);
  absl::Status WriteImage(const PartitionConfig& config, const Image& image);
  // Returns the space of the job's deleted data to the disk. Slow.
  absl::Status GiveBackSpace(JobId job);

 private:
  KvStore& store_;
};

// How PartitionRunner handles an event: steps the core, stores its persists and resets, and feeds back the resulting
// events until there are none. `carry_out` gets the effects of each step before anything is stored, so that backups get
// their updates while the log is written; it must leave `persists` and `reset` alone. After an error the core is ahead
// of the store: drop it and Recover. trace: gets what it takes, where the job is traced; may be null.
absl::Status RunEvent(PartitionCore& core, Persistence& persistence, PartitionEvent event, absl::Time now,
                      const std::function<void(PartitionEffects&)>& carry_out, TraceRecorder* trace = nullptr);
// Likewise, with all effects collected in order.
absl::StatusOr<PartitionEffects> RunEvent(PartitionCore& core, Persistence& persistence, PartitionEvent event,
                                          absl::Time now);

}  // namespace cairn
