// ValueLog: where RocksDbKvStore keeps the bodies of large values, in files of its own beside RocksDB.
//
// RocksDB copies a value into its batch, its write-ahead log, its memtable and again into a file; a ps that logs every
// gradient spent most of its time there. Here a body is written once, straight from its buffer, and RocksDB keeps its
// place.
//
// Thread-safe. Files: DIRECTORY/N.values, at most kSegmentBytes each (one body more at the end). Invariants:
//   1. A body is whole in its file before Append returns; the store writes
//      its place to RocksDB only then. Bytes that no place names are
//      garbage, so that a crash between the two leaves nothing to mend.
//   2. A file is used again or deleted only when all bodies in it
//      were released, and the caller releases a body only after the
//      batch that forgets its place is confirmed.
//   3. Bodies of each urgency fill files of their own: who appends an urgent one never waits for a file that a large
//      body of another kind is being written to (the system lets one thread at a time write to a file); and bodies that
//      stay do not hold the files of those that go.
//   4. The bytes carry no checksum: who stores them keeps one beside the place (Persistence does).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status.h"

namespace cairn {

class ValueLog {
 public:
  // Large enough that rotation costs nothing, small enough that few live bytes do not hold much dead space.
  static constexpr uint64_t kSegmentBytes = uint64_t{32} << 20;

  // kLater: what nobody waits for, and what lives longer. kLasting: the same, and what stays.
  enum class Urgency { kNow, kLater, kLasting };

  struct Place {
    uint64_t segment = 0;
    uint64_t offset = 0;
    uint64_t size = 0;
  };

  // Creates the directory where it is missing. Follow up with Retain for every place that the store names, then Sweep.
  static absl::StatusOr<std::unique_ptr<ValueLog>> Open(const std::string& directory);

  // Errors: DATA_LOSS where no value log ever wrote such a place.
  absl::Status Retain(const Place& place);
  void Sweep();  // drops the files that nothing was retained in

  // Retained. size > 0. Errors: RESOURCE_EXHAUSTED no space, UNAVAILABLE; both name the file.
  absl::StatusOr<Place> Append(const void* data, size_t size, Urgency urgency = Urgency::kNow);
  absl::Status Sync(uint64_t segment);  // to the disk
  // Appends the bytes to *out. Errors: DATA_LOSS where the file is missing or too short.
  absl::Status Read(const Place& place, std::string* out) const;
  void Release(const Place& place);
  void DropSpares();  // deletes the dead files that are kept to be written over

 private:
  class File;
  struct Segment {
    uint64_t bodies = 0;  // not released
  };

  explicit ValueLog(std::string directory) : directory_(std::move(directory)) {}
  std::string PathOf(uint64_t segment) const;
  // What is being filled.
  struct Active {
    std::shared_ptr<File> file;
    uint64_t segment = 0;  // 0: none yet
    uint64_t end = 0;
  };
  absl::Status StartSegment(Active& active) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsActive(uint64_t segment) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Retire(uint64_t segment) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string directory_;
  mutable absl::Mutex mutex_;
  std::map<uint64_t, Segment> segments_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint64_t> spares_ ABSL_GUARDED_BY(mutex_);
  std::array<Active, 3> active_ ABSL_GUARDED_BY(mutex_);  // by urgency
  uint64_t last_segment_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t named_on_disk_ ABSL_GUARDED_BY(mutex_) = 0;  // files up to it have their names on the disk
};

}  // namespace cairn
