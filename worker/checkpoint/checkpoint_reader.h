// Checkpoints on disk, the reading half: finds one, and believes nothing of it before every byte was checked.
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
  SafetensorsFile optimizer;  // one for each slot of each trainable variable
};

// The checkpoint in this directory, whole. Errors: NOT_FOUND no checkpoint; DATA_LOSS torn or altered.
absl::StatusOr<Checkpoint> ReadCheckpoint(const std::string& directory);

// When the newest checkpoint in this directory was written, as its manifest says; 0: there is none that can be read.
int64_t NewestWrittenUnixMs(const std::string& directory);

struct FoundCheckpoint {
  Checkpoint checkpoint;
  std::vector<std::string> skipped;  // newer ones that are torn, altered or refused: what is wrong with each
};

// FAILED_PRECONDITION: the job wrote no such checkpoint: another one's has taken its name.
absl::Status CheckWrittenBy(uint64_t job_id, const v1::JobSpec& spec, const Checkpoint& checkpoint);

// `path`: a checkpoint's directory, or one that holds several: then the newest whole one is taken. `fallbacks`: other
// paths, tried in turn where `path` gives none. `accepts`: what it refuses is passed over as a torn one is. Errors:
// those of `path`.
using AcceptsCheckpoint = std::function<absl::Status(const Checkpoint&)>;
absl::StatusOr<FoundCheckpoint> OpenCheckpoint(const std::string& path, absl::Span<const std::string> fallbacks = {},
                                               const AcceptsCheckpoint& accepts = nullptr);

}  // namespace cairn
