// ObjectCache: objects of S3 as files in a folder of bounded size, which all workers of a user on a machine share.
//
//   lock                        flock: who changes what is below
//   objects/ab/abcd...          an object that is here in whole, by CacheFile.id; its time: when it was last used
//   sets/PROCESS/alive          flock: while that process lives
//   sets/PROCESS/SET/files/...  the files of a data set that it has open, hard links to objects
//   .../SET/partial/abcd...     what of it is being fetched
//   .../SET/coming              its size: the bytes that are still to come
//   sets/PROCESS/staged/...     files of that process on their way to S3 (s3_files.h)
//   fetch/NN                    flock: who fetches a data set; its time: when it last made progress
//
// Thread-safe, and so between processes. A set is used by one thread at a time, but for Create. Invariants:
//   1. A file in objects/ is complete, on the disk, and never changed: it got its name after a sync.
//   2. The bytes in objects/ and those still to come of all sets are at most bytes_max together, while every process
//      has the same bound.
//   3. What is evicted is in no set: it has one link. Least recently used first.
//   4. What a process left that died is removed by the next Reserve of any.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/base/executor.h"
#include "common/base/files.h"
#include "common/base/status.h"

namespace cairn {

struct CacheFile {
  std::string id;    // 64 hexadecimal digits of what makes the object: endpoint, bucket, key, ETag, size
  std::string path;  // below the set's files; CheckKey accepts it
  uint64_t bytes = 0;
  std::string etag;
};

class ObjectCache {
 public:
  class Set;

  // Creates the folder, for this user alone. Errors: those of the system; PERMISSION_DENIED: others may write to it.
  static absl::StatusOr<std::shared_ptr<ObjectCache>> Open(const std::string& folder, uint64_t bytes_max);

  // A new set with these files, of which those that are here are linked into it. Room is made for the others. Errors:
  // RESOURCE_EXHAUSTED: they do not fit; INVALID_ARGUMENT: two that cannot be beside each other, "a" and "a/b".
  absl::StatusOr<std::unique_ptr<Set>> Reserve(std::vector<CacheFile> files);
  // Ends a set on a thread of the cache: a large one takes seconds.
  void Discard(std::unique_ptr<Set> set);

  // Waits until nobody else fetches what is called so, while they make progress. `stopping` ends the wait.
  absl::StatusOr<FileDescriptor> LockFetch(const std::string& name, const std::function<bool()>& stopping) const;
  // What holds that lock has made progress.
  static void TellProgress(const FileDescriptor& lock);

  // The sets of this process are below it.
  const std::string& sets_folder() const { return own_sets_; }
  // A folder for files that are written on this machine and then uploaded; it goes with the sets of this process.
  absl::StatusOr<std::string> MakeStagingFolder() const;

  ~ObjectCache();

 private:
  ObjectCache(const std::string& folder, uint64_t bytes_max);
  absl::StatusOr<FileDescriptor> Lock() const;
  absl::Status MakeOwnFolder();
  std::string PathOf(const std::string& id) const;
  void RemoveDeadSets() const;
  absl::Status MakeRoom(uint64_t bytes) const;
  absl::Status LinkPresent(Set& set) const;

  const std::string folder_, objects_, sets_, own_sets_;
  const uint64_t bytes_max_;
  FileDescriptor alive_;
  SerialExecutor cleaner_{"s3-cache"};
};

// Removes its files from the set, not from the cache, when it ends.
class ObjectCache::Set {
 public:
  ~Set();
  Set(const Set&) = delete;
  Set& operator=(const Set&) = delete;

  const std::string& files_folder() const { return files_folder_; }
  const std::vector<CacheFile>& files() const { return files_; }
  const std::vector<size_t>& missing() const { return missing_; }  // indexes of files(), ascending
  uint64_t missing_bytes() const { return missing_bytes_; }

  // A file to write one of the missing ones to. Any thread.
  absl::StatusOr<FileDescriptor> Create(size_t index) const;
  // They are written in whole: keeps them in the cache and links them into the set.
  absl::Status Keep(absl::Span<const size_t> indexes);

 private:
  friend class ObjectCache;
  Set(const ObjectCache& cache, std::string folder, std::vector<CacheFile> files);
  absl::Status Make();
  absl::Status MakeFolderOf(const std::string& path);
  std::string Partial(size_t index) const { return folder_ + "/partial/" + files_[index].id; }
  std::string FileOf(size_t index) const { return files_folder_ + "/" + files_[index].path; }

  const ObjectCache& cache_;
  const std::string folder_, files_folder_;
  const std::vector<CacheFile> files_;
  FileDescriptor coming_;
  std::vector<size_t> missing_;
  uint64_t missing_bytes_ = 0, kept_bytes_ = 0;
  std::string last_folder_;  // that was made
};

}  // namespace cairn
