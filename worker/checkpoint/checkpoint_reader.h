// Reads checkpoints from disk: finds one, and uses nothing of it before every byte has been checked.
//
// Free functions, blocking; any thread. Errors name the directory or file and what is wrong.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/base/status.h"
#include "common/formats/safetensors.h"
#include "worker/checkpoint/checkpoint_manifest.h"

namespace cairn {

struct Checkpoint {
  std::string path;
  CheckpointManifest manifest;
  SafetensorsFile model;      // a tensor for each variable of the manifest's model, with its shape, FLOAT32
  SafetensorsFile optimizer;  // a tensor for each slot of each trainable variable
};

// The complete checkpoint in this directory. Errors: NOT_FOUND no checkpoint; DATA_LOSS torn or altered.
absl::StatusOr<Checkpoint> ReadCheckpoint(const std::string& directory);

// When the newest checkpoint in this directory was written, by its manifest; 0: there is no readable one.
int64_t NewestWrittenUnixMs(const std::string& directory);

struct FoundCheckpoint {
  Checkpoint checkpoint;
  std::vector<std::string> skipped;  // one reason for each newer checkpoint that is torn, altered or refused
};

// FAILED_PRECONDITION: another job wrote the checkpoint, in place of one of this job's.
absl::Status CheckWrittenBy(uint64_t job_id, const v1::JobSpec& spec, const Checkpoint& checkpoint);

// `path`: a checkpoint's directory, or a directory of several, of which the newest complete one is used. `fallbacks`:
// other paths, tried in order if `path` has no usable checkpoint. `accepts`: a checkpoint that it refuses is skipped
// like a torn one. Errors: those of `path`.
using AcceptsCheckpoint = std::function<absl::Status(const Checkpoint&)>;
absl::StatusOr<FoundCheckpoint> OpenCheckpoint(const std::string& path, absl::Span<const std::string> fallbacks = {},
                                               const AcceptsCheckpoint& accepts = nullptr);

}  // namespace cairn
