// The directory of checkpoints that all simulated workers share: whole directories that appear and vanish at once, as
// worker/checkpoint/checkpoint_writer.h promises. A damaged one is found by its checksums.
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
  uint64_t number = 0;  // in the order in which they were written, whatever the clocks say
  bool damaged = false;
};

class CheckpointDirectory {
 public:
  // dir/step-<n>, in place of one that is there. Errors: full().
  absl::StatusOr<std::string> Write(CheckpointContents contents, int64_t now_unix_ms);
  absl::StatusOr<std::string> KeepAsBest(const std::string& path);
  void Remove(const std::string& path) { stored_.erase(path); }

  // As OpenCheckpoint: `path` is one or the directory, whose newest whole one is meant; then each of `fallbacks`.
  struct Found {
    std::string path;
    std::shared_ptr<const StoredCheckpoint> checkpoint;
    std::vector<std::string> skipped;
  };
  absl::StatusOr<Found> Open(const std::string& path, absl::Span<const std::string> fallbacks = {}) const;
  int64_t NewestWrittenUnixMs() const;  // as that of checkpoint_reader.h
  bool IsWhole(const std::string& path) const;
  // No whole one was written later; the best is not one of them.
  bool IsNewest(const Found& found) const;
  size_t whole() const;

  void Damage(const std::string& path);
  void SetFull(bool full) { full_ = full; }
  bool full() const { return full_; }
  const std::map<std::string, std::shared_ptr<const StoredCheckpoint>>& stored() const { return stored_; }
  int failed_writes() const { return failed_writes_; }

 private:
  bool full_ = false;
  int failed_writes_ = 0;
  uint64_t last_number_ = 0;
  std::map<std::string, std::shared_ptr<const StoredCheckpoint>> stored_;  // by path
};

}  // namespace cairn::sim
