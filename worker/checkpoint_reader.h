// Checkpoints on disk, the reading half: finds one, and believes nothing of it before every byte was checked.
//
// Free functions, blocking; any thread. Errors name the directory or file and what is wrong.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/base/status.h"
#include "common/formats/safetensors.h"
#include "worker/checkpoint_manifest.h"

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
  std::vector<std::string> skipped;  // newer ones that are torn or altered: what is wrong with each
};

// `path`: a checkpoint's directory, or one that holds several: then the newest whole one is taken. `fallbacks`: other
// paths, tried in turn where `path` gives none. Errors: those of `path`.
absl::StatusOr<FoundCheckpoint> OpenCheckpoint(const std::string& path, absl::Span<const std::string> fallbacks = {});

}  // namespace cairn
