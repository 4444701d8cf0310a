// Checkpoints on disk, the writing half: a directory `step-<n>` with model.safetensors, optimizer.safetensors and
// manifest.json.
//
// Free functions, blocking: of a thread that may wait for the disk. Several processes may use one directory.
// Invariants:
//   1. A directory with a final name is whole and on the disk: it is written
//      beside its place, its files and itself are fsynced, then it is
//      renamed; a reader or a crash sees the former state or the new one.
//   2. What a killed writer left (`.partial-<job>-*`) is removed by the same job's next writer, but not what another
//      process writes at that time: it holds a lock on it. What else may be touched: own_checkpoints.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/model/graph.h"
#include "common/tensor/buffer.h"
#include "worker/checkpoint/checkpoint_manifest.h"
#include "worker/checkpoint/own_checkpoints.h"

namespace cairn {

struct CheckpointContents {
  CheckpointManifest manifest;  // files, library_version and written_unix_ms are filled in by the writer
  std::shared_ptr<const Graph> graph;
  Buffer values;              // float32, the whole parameter space
  std::vector<Buffer> slots;  // the same for each of SlotNames(optimizer)
};

// Writes dir/step-<n>, in place of one that is there, as OwnCheckpoints::Put; makes `dir` where it is missing. Returns
// its path. Errors: INTERNAL, PERMISSION_DENIED, RESOURCE_EXHAUSTED (disk full) name the file, FAILED_PRECONDITION
// names what is in its place; nothing is left behind.
absl::StatusOr<std::string> WriteCheckpoint(const std::string& dir, CheckpointContents contents, int64_t now_unix_ms);

// Makes dir/best another name of the files of the owner's checkpoint of this step (a copy where the file system has no
// hard links). Returns its path.
absl::StatusOr<std::string> KeepAsBest(const std::string& dir, int64_t step, const CheckpointOwner& owner);

// When dir/best came there, by the file system's clock; InfinitePast: there is none.
absl::Time BestKeptAt(const std::string& dir);

}  // namespace cairn
