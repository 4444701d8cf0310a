// Turns a checkpoint into the state of a job's partitions: to resume the job (resume_from), or to start a new one with
// its weights (initial_weights).
//
// Free functions, blocking (they read files); any thread. remote: null: every path is of this machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "cairn/v1/cluster.pb.h"
#include "cairn/v1/job.pb.h"
#include "cairn/v1/storage.pb.h"
#include "common/base/remote_files.h"
#include "common/base/status.h"
#include "common/tensor/buffer.h"
#include "common/tensor/frame.h"
#include "worker/checkpoint/checkpoint_manifest.h"
#include "worker/checkpoint/checkpoint_reader.h"
#include "worker/limits.h"

namespace cairn {

struct RestoredState {
  std::string path;                   // the checkpoint that was read
  std::vector<std::string> skipped;   // newer checkpoints that are torn or altered, each with the reason
  int64_t step = 0;                   // the job resumes here; weights only: 0
  std::vector<int64_t> replica_step;  // asynchronous: by replica; empty: all at `step`
  Buffer values;                      // the whole parameter space
  std::vector<Buffer> slots;
  CheckpointManifest manifest;  // set for resume_from
  bool weights_only = false;
};

// The whole state of a checkpoint. `spec` is resolved; steps_per_epoch, if > 0, must be the checkpoint's. job_id > 0:
// a checkpoint in this job's own directory must be its own, unless the job began with it (resume_from).
// Errors: those of OpenCheckpoint; FAILED_PRECONDITION names the field, layer or variable that does not fit.
absl::StatusOr<RestoredState> RestoreCheckpoint(const v1::JobSpec& spec, const std::string& path,
                                                absl::Span<const std::string> fallbacks, int64_t steps_per_epoch,
                                                uint64_t job_id = 0, RemoteFiles* remote = nullptr);

// Whether RestoreCheckpoint would succeed, and with which checkpoint: for who does not need the numbers. Of what lies
// remotely the manifest and the headers are read (TensorsRead::kShapes). Errors: those of RestoreCheckpoint.
absl::StatusOr<FoundCheckpoint> CheckRestoreCheckpoint(const v1::JobSpec& spec, const std::string& path,
                                                       int64_t steps_per_epoch, RemoteFiles* remote = nullptr);

// The weights of a checkpoint or of a file that initial_weights allows. Variables in
// spec.initial_weights_skip keep their initial values; other tensors in the file are ignored. Errors:
// FAILED_PRECONDITION names a variable that is missing or has another shape. fetch_max: how long a file of a remote
// root is waited for.
absl::StatusOr<RestoredState> RestoreWeights(const v1::JobSpec& spec, const std::string& path,
                                             absl::Span<const std::string> fallbacks, RemoteFiles* remote = nullptr,
                                             absl::Duration fetch_max = kWeightsFetchMax);

// Whether RestoreWeights would succeed; gives the path of what it would take. What is read of a remote checkpoint or
// .safetensors file: as above. Errors: those of RestoreWeights.
absl::StatusOr<std::string> CheckRestoreWeights(const v1::JobSpec& spec, const std::string& path,
                                                RemoteFiles* remote = nullptr,
                                                absl::Duration fetch_max = kWeightsFetchMax);

// The image header of the partition [begin, end) in a job of `replicas`. Synchronous: at `step`. Asynchronous with the
// checkpoint's replicas and partitioning: exactly as in the checkpoint. With another partitioning: each replica resumes
// at its lowest sequence of the overlapping partitions. With other replicas: all resume at the slowest one's step, and
// the later work of faster ones is repeated.
// local_sync: this many neighbouring replicas are one to the ps.
v1::PartitionImage ImageHeader(const RestoredState& state, uint64_t begin, uint64_t end, int32_t replicas,
                               int32_t local_sync = 1);

// The training figures for the job's first partition, whose header (ImageHeader) is `first`. Where steps are repeated,
// or the checkpoint has no matching figures, they hold the number of steps only.
EpochList FiguresAt(const RestoredState& state, const v1::PartitionImage& first, const v1::JobSpec& spec);

// The IMAGE frames, one per tensor, with which `command` fills this partition; sent in this order as one request. The
// range must lie within the parameter space.
std::vector<Frame> RestoreFrames(const v1::Restore& command, const RestoredState& state,
                                 const v1::PartitionRange& range);

}  // namespace cairn
