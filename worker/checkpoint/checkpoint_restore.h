// From a checkpoint to the state of a job's partitions: what goes on where (resume_from), or starts over with its
// weights (initial_weights).
//
// Free functions, blocking (they read files); any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "cairn/v1/cluster.pb.h"
#include "cairn/v1/job.pb.h"
#include "cairn/v1/storage.pb.h"
#include "common/base/status.h"
#include "common/tensor/buffer.h"
#include "common/tensor/frame.h"
#include "worker/checkpoint/checkpoint_manifest.h"

namespace cairn {

struct RestoredState {
  std::string path;                   // what was read
  std::vector<std::string> skipped;   // newer checkpoints that are torn or altered, each with what is wrong
  int64_t step = 0;                   // the job goes on from here; weights alone: 0
  std::vector<int64_t> replica_step;  // asynchronous: by replica; empty: all at `step`
  Buffer values;                      // the whole parameter space
  std::vector<Buffer> slots;
  CheckpointManifest manifest;  // resume_from: what was read
  bool weights_only = false;
};

// Everything of a checkpoint. `spec` is resolved; steps_per_epoch > 0 must be that of the checkpoint. job_id > 0: what
// is where this job writes its checkpoints has to be its own, unless the job began with it (resume_from).
// Errors: those of OpenCheckpoint; FAILED_PRECONDITION names the field, layer or variable that does not fit.
absl::StatusOr<RestoredState> RestoreCheckpoint(const v1::JobSpec& spec, const std::string& path,
                                                absl::Span<const std::string> fallbacks, int64_t steps_per_epoch,
                                                uint64_t job_id = 0);

// The weights of a checkpoint or a .safetensors file, in float32, float16 or bfloat16. Variables of
// spec.initial_weights_skip keep their initial values; what else the file holds is left. Errors: FAILED_PRECONDITION
// names a variable that is missing or has another shape.
absl::StatusOr<RestoredState> RestoreWeights(const v1::JobSpec& spec, const std::string& path,
                                             absl::Span<const std::string> fallbacks);

// The header of the partition [begin, end) in a job of `replicas`. Synchronous: at `step`. Asynchronous with the
// checkpoint's replicas and cut: exactly as it was cut; with another cut: each replica where it was in the part that
// was furthest behind; with other replicas: all where the slowest one was. What faster ones had done after that is done
// again.
// local_sync: so many neighbouring replicas are one to the ps.
v1::PartitionImage ImageHeader(const RestoredState& state, uint64_t begin, uint64_t end, int32_t replicas,
                               int32_t local_sync = 1);

// The figures of the training's steps that the job's first partition holds, whose header (ImageHeader) is `first`.
// Where steps are done again, or the checkpoint has no figures that fit, they are of the number of steps alone.
EpochList FiguresAt(const RestoredState& state, const v1::PartitionImage& first, const v1::JobSpec& spec);

// One IMAGE frame a tensor, to be sent in this order as one request: how `command` fills this partition. The range lies
// within the parameter space.
std::vector<Frame> RestoreFrames(const v1::Restore& command, const RestoredState& state,
                                 const v1::PartitionRange& range);

}  // namespace cairn
