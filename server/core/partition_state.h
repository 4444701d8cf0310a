// PartitionState: what a partition is made of (values, slots, versions, sequence table) and the one function that moves
// it on.
//
// The core applies updates with it as they become durable, recovery replays the log with it: the same code, hence the
// same bits. Not thread-safe. Invariants:
//   1. The bytes of `values` and `previous` are never written to: replies and images share
//      them. An update writes the new values over the gradient's buffer (where no one else
//      holds it) and keeps the old ones as `previous`, so that a partition owns values + slots
//      + max(previous, the gradients of the open step), and an update allocates nothing.
//   2. sequences.size() == replicas. Synchronous: every entry equals version.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "cairn/v1/job.pb.h"
#include "cairn/v1/storage.pb.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/model/clip_norm.h"
#include "common/model/epoch_figures.h"
#include "common/model/loss_scale.h"
#include "common/model/penalty.h"
#include "common/tensor/buffer.h"
#include "common/tensor/summation_tree.h"
#include "server/core/optimizer.h"

namespace cairn {

enum class UpdateMode {
  kSynchronous,       // one update a step, when all replicas' gradients are there
  kAsynchronous,      // one update a push
  kBoundedStaleness,  // the same, and a replica that is too far ahead waits for its answer
};

// When a new base image is due. A larger log costs disk and time at a restart; a smaller one costs writes, since each
// image writes values and slots once more.
struct ImageOptions {
  uint64_t log_bytes_min = uint64_t{16} << 20;  // never before the log has grown by this
  // And by this many times the image's own size: images add at most 1/4 to the writes of the log. More would save
  // little; a small log stays in the page cache, and its files are written over before they reach the disk.
  uint32_t log_to_image_ratio = 4;
  // SNAPSHOT jobs, which have no log: an image at each multiple of this. The same for all partitions of a job: that
  // they can be taken back to one version. A ps that dies costs at most about this many updates.
  uint64_t snapshot_every = 100;
};

// Everything about a partition that does not change within a generation.
struct PartitionConfig {
  JobId job;
  PartitionId partition;
  Generation generation;
  int64_t begin = 0, end = 0;  // numbers of the parameter space
  std::vector<Segment> segments;
  OptimizerRule optimizer;
  v1::DataType wire = v1::FLOAT32;  // what gradients are rounded to, at every node of the summation tree
  uint64_t seed = 0;
  GradientLayout layout;
  double clip_norm = 0;                // kSynchronous
  std::vector<ClipScope> clip_scopes;  // kSynchronous; empty: nothing is measured of a gradient
  std::optional<LossScaleRule> loss_scale;
  std::vector<PenaltyRange>
      penalties;  // whose gradient is added to each sum (synchronous) or push, before it is clipped
  uint32_t replicas = 1;
  int metrics = 0;  // of the job: in the figures of its training, which the first partition keeps
  UpdateMode mode = UpdateMode::kSynchronous;
  uint64_t staleness_bound = 0;  // kBoundedStaleness: >= 1
  v1::Durability durability = v1::LOGGED;
  bool fsync = false;            // where the log is written before the reply: it reaches the disk, too
  uint32_t backup_replicas = 0;  // kSynchronous: a step closes without the gradients of so many
  bool backup = false;           // this copy follows a primary
  bool keep = false;   // the job trains no more: what this copy is at goes to the disk, synced, where it is not there
  bool ended = false;  // it has ended: of this copy the values alone are kept, on the disk (resting_values.h)
  ImageOptions image;
  std::function<void(absl::Span<float>)> initialize;  // fills in the values of version 0

  int64_t size() const { return end - begin; }
  bool keeps_figures() const { return partition.value == 0; }
  // In which type an update's gradient is exact, and logged and sent to backups: as it was summed up, where nothing is
  // done to the sum.
  v1::DataType log_dtype() const { return penalties.empty() && clip_norm == 0 ? wire : v1::FLOAT32; }
  // Refers to this config.
  GradientRounding RoundingOf(uint64_t sequence) const { return {wire, seed, sequence, begin, &layout}; }
  size_t GradientBytes(v1::DataType type) const {
    return PackedBytes(RoundingOf(0).As(type), static_cast<size_t>(size()));
  }
  std::string Name() const;  // "job 3 partition 7", for errors
};

struct PartitionState {
  uint64_t version = 0;
  Buffer values;
  std::vector<Buffer> slots;
  std::vector<uint64_t> sequences;  // last applied, by replica
  uint64_t image_version = 0;       // of the newest base image on disk; 0: none, the initial values stand for it
  uint64_t log_bytes = 0;           // logged since that image
  std::string norms;                // LogEntry.norms of the last update
  LossScale loss_scale;             // of jobs that have one
  float previous_loss_scale = 0;    // of version - 1
  EpochList figures;  // of all updates up to `version`, but of epochs that are stored; of the first partition
  Buffer previous;    // values of version - 1; empty where they are not kept

  bool at_rest() const {
    return values.empty();
  }  // of an ended job: the values are on the disk alone, the slots nowhere
  static PartitionState Initial(const PartitionConfig& config);
};

// Checks an entry against a partition that is at `version` with these sequence numbers: version, replica range,
// sequence, gradient size, loss scale, figures. DATA_LOSS: the entry is not of this partition.
absl::Status CheckEntry(const PartitionConfig& config, uint64_t version, absl::Span<const uint64_t> sequences,
                        const v1::LogEntry& entry, size_t gradient_bytes);
inline absl::Status CheckEntry(const PartitionConfig& config, const PartitionState& state, const v1::LogEntry& entry,
                               size_t gradient_bytes) {
  return CheckEntry(config, state.version, state.sequences, entry, gradient_bytes);
}
// The bytes of an entry's gradient and its type: where the gradient is empty, the entry has none.
inline v1::DataType DtypeOf(const v1::LogEntry& entry) {
  return entry.dtype() == v1::DATA_TYPE_UNSPECIFIED ? v1::FLOAT32 : entry.dtype();
}
Buffer PackGradient(const PartitionConfig& config, const v1::LogEntry& entry,
                    const Buffer& gradient);  // shared, not copied, where it is FLOAT32
Buffer UnpackGradient(const PartitionConfig& config, const v1::LogEntry& entry, absl::Span<const uint8_t> bytes);
// Applies a checked entry. `gradient` holds the summed gradient (empty where entry.examples() == 0) and is consumed.
// Slots that an image shares are copied before they are written to.
void ApplyEntry(const PartitionConfig& config, const v1::LogEntry& entry, Buffer gradient, PartitionState& state);

}  // namespace cairn
