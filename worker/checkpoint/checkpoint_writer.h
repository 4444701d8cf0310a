// Writes checkpoints to a folder of this machine: a directory `step-<n>` with model.safetensors, optimizer.safetensors
// and manifest.json.
//
// Free functions, blocking: call them from a thread that may wait for the disk. Several processes may use one
// directory. Invariants:
//   1. A directory with a final name is complete and durable: it is written
//      under a temporary name, its files and itself are fsynced, then it is
//      renamed; a reader or a crash sees the old state or the new one.
//   2. The next writer of a job removes the leftovers of its killed writers (`.partial-<job>-*`), but not a directory
//      that a live process is writing, which holds a lock on it. For other files see own_checkpoints.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/status.h"
#include "worker/checkpoint/checkpoint_contents.h"
#include "worker/checkpoint/checkpoint_manifest.h"
#include "worker/checkpoint/own_checkpoints.h"

namespace cairn {

// Writes dir/step-<n>, replacing an existing one as OwnCheckpoints::Put does; creates `dir` if it is missing. Returns
// its path. Errors: INTERNAL, PERMISSION_DENIED, RESOURCE_EXHAUSTED (disk full) name the file, FAILED_PRECONDITION
// names what is in its place; nothing is left behind. set_aside: as of OwnCheckpoints::Put.
absl::StatusOr<std::string> WriteCheckpoint(const std::string& dir, CheckpointContents contents, int64_t now_unix_ms,
                                            std::vector<std::string>* set_aside = nullptr);

// Makes dir/best a copy of the owner's checkpoint of this step, by hard links where the file system has them. Returns
// its path.
absl::StatusOr<std::string> KeepAsBest(const std::string& dir, int64_t step, const CheckpointOwner& owner,
                                       std::vector<std::string>* set_aside = nullptr);

// When dir/best was created, by the file system's clock; InfinitePast: it does not exist.
absl::Time BestKeptAt(const std::string& dir);

}  // namespace cairn
