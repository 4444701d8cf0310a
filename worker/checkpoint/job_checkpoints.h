// JobCheckpoints: the checkpoints of one job in its checkpoints.dir, as it writes, keeps and removes them: the seam
// between a folder of this machine (checkpoint_writer.h, own_checkpoints.h) and a prefix of S3 (remote_checkpoints.h).
//
// Blocking: called on a thread that may wait for disk and network. Several processes may use one directory. Invariants:
//   1. A checkpoint that has a manifest is whole: the manifest comes last, and goes first.
//   2. Only checkpoints of this job are replaced or removed. One of another job that is in the way is set aside.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/base/remote_files.h"
#include "common/base/status.h"
#include "worker/checkpoint/checkpoint_contents.h"
#include "worker/checkpoint/own_checkpoints.h"

namespace cairn {

class JobCheckpoints {
 public:
  virtual ~JobCheckpoints() = default;
  // Writes step-<n>, in place of one of this job. Returns its path. Errors: those of disk or network, with the file;
  // FAILED_PRECONDITION names what is in its place; ABORTED: another worker has written it at the same time. Nothing is
  // left behind, or the next writer removes it.
  virtual absl::StatusOr<std::string> Write(CheckpointContents contents, int64_t now_unix_ms) = 0;
  // Makes `best` a copy of the job's checkpoint of this step. Returns its path.
  virtual absl::StatusOr<std::string> KeepAsBest(int64_t step) = 0;
  // What Write and KeepAsBest have set aside since the last call, as TellSetAside says it; also if they then failed.
  std::vector<std::string> TakeSetAside() { return std::exchange(set_aside_, {}); }
  // When `best` was written, by the clock of where it lies; InfinitePast: it does not exist.
  virtual absl::Time BestKeptAt() = 0;

  // Whether the rest can be asked. Errors: NOT_FOUND: there is no such directory; those of the system.
  virtual absl::Status Open() = 0;
  // As of OwnCheckpoints.
  virtual absl::Status Check(const std::string& name) = 0;
  virtual absl::Status Remove(const std::string& name) = 0;
  virtual absl::Status RemoveAll() = 0;

 protected:
  std::vector<std::string> set_aside_;
};

// remote: null: every path is of this machine. It outlives the result.
std::unique_ptr<JobCheckpoints> CheckpointsIn(const std::string& dir, CheckpointOwner owner, RemoteFiles* remote);

}  // namespace cairn
