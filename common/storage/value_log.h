// ValueLog: stores the bodies of large values for RocksDbKvStore, in separate files next to RocksDB.
//
// RocksDB copies a value into its batch, its write-ahead log, its memtable and again into a file; a ps that logs every
// gradient spent most of its time there. Here a body is written once, straight from its buffer, and RocksDB stores only
// its place.
//
// Thread-safe. Files: DIRECTORY/N.values, at most kSegmentBytes each (one body more at the end). Invariants:
//   1. A body is completely written before Append returns; the store writes
//      its place to RocksDB only then. Bytes that no place refers to are
//      garbage, so that a crash between the two needs no repair.
//   2. A file is reused or deleted only when all bodies in it have
//      been released, and the caller releases a body only after the
//      batch that deletes its place is confirmed.
//   3. Bodies of each urgency have files of their own: an urgent append never waits for a large, less urgent body that
//      is being written to the same file (the system lets one thread at a time write to a file), and long-lived bodies
//      do not pin the files of short-lived ones.
//   4. The bytes carry no checksum: the caller keeps one with the place (Persistence does).
//   5. A sync that succeeds covers every byte appended before it began. The first one that fails ends the log: the
//      kernel tells of a page that it could not write once, to one caller, and then takes it for clean, so that a
//      second sync of the same file would succeed without it.
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
  // Large enough that rotation is cheap, small enough that a few live bytes do not pin much dead space.
  static constexpr uint64_t kSegmentBytes = uint64_t{32} << 20;

  // kLater: nothing waits for the body, and it lives longer. kLasting: also, it is kept for good.
  enum class Urgency { kNow, kLater, kLasting };

  struct Place {
    uint64_t segment = 0;
    uint64_t offset = 0;
    uint64_t size = 0;
  };

  class File;
  // The files that bodies were appended to. It keeps them open until they are synced: a file that was closed and opened
  // again does not tell of an earlier failure.
  class Unsynced {
   private:
    friend class ValueLog;
    std::map<uint64_t, std::shared_ptr<File>> files_;  // by segment
  };

  // Creates the directory if it is missing. The caller then calls Retain for every place in the store, then Sweep.
  static absl::StatusOr<std::unique_ptr<ValueLog>> Open(const std::string& directory);

  // Errors: DATA_LOSS: no value log can have written such a place.
  absl::Status Retain(const Place& place);
  void Sweep();  // drops files without retained bodies

  // The new body is retained. size > 0. Errors: RESOURCE_EXHAUSTED no space, UNAVAILABLE; both name the file.
  // unsynced: gets the file. After a failed sync: that sync's error.
  absl::StatusOr<Place> Append(const void* data, size_t size, Urgency urgency = Urgency::kNow,
                               Unsynced* unsynced = nullptr);
  absl::Status Sync(const Unsynced& unsynced);  // to the disk, names included
  // Appends the bytes to *out. Errors: DATA_LOSS: the file is missing or too short.
  absl::Status Read(const Place& place, std::string* out) const;
  void Release(const Place& place);
  void DropSpares();  // deletes the dead files that are kept for reuse

 private:
  struct Segment {
    uint64_t bodies = 0;  // not released
  };

  explicit ValueLog(std::string directory) : directory_(std::move(directory)) {}
  std::string PathOf(uint64_t segment) const;
  // The file being filled.
  struct Active {
    std::shared_ptr<File> file;
    uint64_t segment = 0;  // 0: none yet
    uint64_t end = 0;
  };
  absl::Status StartSegment(Active& active) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsActive(uint64_t segment) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Retire(uint64_t segment) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status SyncFiles(const Unsynced& unsynced);

  const std::string directory_;
  mutable absl::Mutex mutex_;
  std::map<uint64_t, Segment> segments_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint64_t> spares_ ABSL_GUARDED_BY(mutex_);
  std::array<Active, 3> active_ ABSL_GUARDED_BY(mutex_);  // by urgency
  uint64_t last_segment_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t named_on_disk_ ABSL_GUARDED_BY(mutex_) = 0;  // the directory entries of files up to this one are synced
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);         // the first sync that failed
};

}  // namespace cairn
