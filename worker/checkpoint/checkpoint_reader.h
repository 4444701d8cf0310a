// Reads checkpoints from a folder or from S3 (checkpoint_files.h): finds one, and uses nothing of it before every byte
// that was read has been checked.
//
// Free functions, blocking; any thread. remote: null: every path is of this machine. Errors name the directory or file
// and what is wrong.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/base/remote_files.h"
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

// What is read of the tensors. kShapes: where they lie remotely, their headers alone, and `data` is empty: what is torn
// is found by its length, what was altered is not. On this machine everything is read all the same.
enum class TensorsRead { kWhole, kShapes };

// The complete checkpoint in this directory. Errors: NOT_FOUND no checkpoint; DATA_LOSS torn or altered.
absl::StatusOr<Checkpoint> ReadCheckpoint(const std::string& directory, RemoteFiles* remote = nullptr,
                                          TensorsRead what = TensorsRead::kWhole);

// When the newest checkpoint in this directory was written, by its manifest; 0: there is no readable one.
int64_t NewestWrittenUnixMs(const std::string& directory, RemoteFiles* remote = nullptr);

struct FoundCheckpoint {
  Checkpoint checkpoint;
  std::vector<std::string> skipped;  // one reason for each newer checkpoint that is torn, altered or refused
};

// FAILED_PRECONDITION: another job wrote the checkpoint, in place of one of this job's.
absl::Status CheckWrittenBy(uint64_t job_id, const v1::JobSpec& spec, const Checkpoint& checkpoint);

// `path`: a checkpoint's directory, or a directory of several, of which the newest complete one is used. `fallbacks`:
// other paths, tried in order if `path` has no usable checkpoint. `accepts`: a checkpoint that it refuses is skipped
// like a torn one. Errors: those of `path`; of S3, faults that may pass (UNAVAILABLE, PERMISSION_DENIED and the like),
// where no other checkpoint is tried.
using AcceptsCheckpoint = std::function<absl::Status(const Checkpoint&)>;
absl::StatusOr<FoundCheckpoint> OpenCheckpoint(const std::string& path, absl::Span<const std::string> fallbacks = {},
                                               const AcceptsCheckpoint& accepts = nullptr,
                                               RemoteFiles* remote = nullptr, TensorsRead what = TensorsRead::kWhole);

}  // namespace cairn
