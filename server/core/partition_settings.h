// PartitionSettings: what is fixed of a partition within a generation, whatever it is made of.
//
// A plain value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cairn/v1/job.pb.h"
#include "common/base/ids.h"
#include "common/model/clip_norm.h"
#include "common/model/loss_scale.h"

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

// Everything about a partition that does not change within a generation, but for what it is made of.
struct PartitionSettings {
  JobId job;
  PartitionId partition;
  Generation generation;
  int64_t begin = 0, end = 0;  // its range, as the coordinator cut it: numbers of the parameter space
  uint64_t seed = 0;
  double clip_norm = 0;                // kSynchronous
  std::vector<ClipScope> clip_scopes;  // kSynchronous; empty: nothing is measured of a gradient
  std::optional<LossScaleRule> loss_scale;
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

  int64_t size() const { return end - begin; }
  bool keeps_figures() const { return partition.value == 0; }
  std::string Name() const;  // "job 3 partition 7", for errors
};

}  // namespace cairn
