// The checkpoint directory shared by all simulated workers: complete checkpoints that appear and vanish atomically, as
// worker/checkpoint/checkpoint_writer.h promises. A damaged one is detected, as by checksums.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/base/status.h"
#include "worker/checkpoint/checkpoint_writer.h"

namespace cairn::sim {

inline constexpr char kCheckpointDir[] = "/checkpoints";

struct StoredCheckpoint {
  CheckpointContents contents;
  int64_t written_unix_ms = 0;
  uint64_t number = 0;  // order of writing, independent of clocks
  bool damaged = false;
};

class CheckpointDirectory {
 public:
  using Stored = std::map<std::string, std::shared_ptr<const StoredCheckpoint>>;  // by path
  // Writes dir/step-<n>, replacing an existing one. Errors: full().
  absl::StatusOr<std::string> Write(CheckpointContents contents, int64_t now_unix_ms);
  absl::StatusOr<std::string> KeepAsBest(const std::string& path);
  void Remove(const std::string& path) { stored_.erase(path); }

  // As OpenCheckpoint: `path` is a checkpoint, or the directory, for its newest complete one; then each of `fallbacks`.
  struct Found {
    std::string path;
    std::shared_ptr<const StoredCheckpoint> checkpoint;
    std::vector<std::string> skipped;
  };
  absl::StatusOr<Found> Open(const std::string& path, absl::Span<const std::string> fallbacks = {}) const;
  int64_t NewestWrittenUnixMs() const;  // as in checkpoint_reader.h
  bool IsWhole(const std::string& path) const;
  // Whether no complete one was written later, except the copy kept as the best.
  bool IsNewest(const Found& found) const;
  // Whether a job can be resumed from the directory without this one: another one is complete, and not the copy kept as
  // the best, which is found by its own path alone.
  bool ResumesWithout(const std::string& path) const;

  void Damage(const std::string& path);
  void SetFull(bool full) { full_ = full; }
  bool full() const { return full_; }
  const Stored& stored() const { return stored_; }
  int failed_writes() const { return failed_writes_; }

 private:
  bool full_ = false;
  int failed_writes_ = 0;
  uint64_t last_number_ = 0;
  Stored::const_iterator NewestWhole() const;  // not the copy kept as the best; end: there is none

  Stored stored_;
};

}  // namespace cairn::sim
