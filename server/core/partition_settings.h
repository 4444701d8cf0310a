// PartitionSettings: the settings of a partition that are fixed within a generation, for partitions of any kind.
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
  kSynchronous,       // one update per step, when all replicas' gradients are there
  kAsynchronous,      // one update per push
  kBoundedStaleness,  // likewise, and a replica that is too far ahead waits for its answer
};

// When a new base image is due. A larger log costs disk space and restart time; a smaller one costs writes, since each
// image writes all values and slots again.
struct ImageOptions {
  uint64_t log_bytes_min = uint64_t{16} << 20;  // not before the log has grown by this much
  // And by this many times the image's own size: images add at most 1/4 to the writes of the log. More would save
  // little; a small log stays in the page cache, and its files are overwritten before they reach the disk.
  uint32_t log_to_image_ratio = 4;
  // SNAPSHOT jobs, which have no log: an image at each multiple of this version. Equal for all partitions of a job, so
  // that they can go back to a common version. The loss of a ps costs at most about this many updates.
  uint64_t snapshot_every = 100;
};

// Everything about a partition that does not change within a generation, except its kind.
struct PartitionSettings {
  JobId job;
  PartitionId partition;
  Generation generation;
  int64_t begin = 0, end = 0;  // its range in the parameter space, in numbers, as the coordinator cut it
  uint64_t seed = 0;
  double clip_norm = 0;                // kSynchronous
  std::vector<ClipScope> clip_scopes;  // kSynchronous; empty: no norms are measured
  std::optional<LossScaleRule> loss_scale;
  uint32_t replicas = 1;
  int metrics = 0;  // number of the job's metrics, in the training figures that the first partition keeps
  UpdateMode mode = UpdateMode::kSynchronous;
  uint64_t staleness_bound = 0;  // kBoundedStaleness: >= 1
  v1::Durability durability = v1::LOGGED;
  bool fsync = false;            // a log that is written before the reply is also synced to disk
  uint32_t backup_replicas = 0;  // kSynchronous: a step closes without the gradients of this many replicas
  bool backup = false;           // this copy follows a primary
  bool keep = false;   // training is over: this copy's version is written to disk and synced, unless it is there
  bool ended = false;  // the job has ended: only this copy's values are kept, on disk (resting_values.h)
  ImageOptions image;

  int64_t size() const { return end - begin; }
  bool keeps_figures() const { return partition.value == 0; }
  std::string Name() const;  // "job 3 partition 7", for errors
};

}  // namespace cairn
