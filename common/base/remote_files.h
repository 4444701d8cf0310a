// RemoteFiles: files in the remote roots of this process (roots.h), in which checkpoints and model files are written
// and read. common/s3/s3_files.h carries it out; where a path lies on this machine nobody asks it.
//
// Thread-safe, but for an Upload and a StagedFile, which one thread uses at a time. Calls block: a request is repeated
// for a bounded time. Paths are the job's: "out:/run/step-5/manifest.json". Invariants:
//   1. A file is there whole or not at all, also where a writer dies: it appears with Finish, Put or PutNew.
//   2. What is written was compared with what arrived: checksum and length.
//   3. Memory is bounded, whatever the size of a file.
//   4. Nothing is written or removed below a root that is only read: PERMISSION_DENIED.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/status.h"

namespace cairn {

// What lies remotely, as a file or folder of this machine; it stays and does not change while this lives.
class LocalCopy {
 public:
  virtual ~LocalCopy() = default;
  virtual const std::string& path() const = 0;     // of the file or folder, absolute
  virtual const std::string& version() const = 0;  // another one where any file is another one
};

// A file that is written part by part. It is there after Finish; without it nothing is left.
class RemoteUpload {
 public:
  virtual ~RemoteUpload() = default;
  // Errors: of any part so far; ABORTED: somebody else has removed what was begun.
  virtual absl::Status Add(absl::string_view bytes) = 0;
  // All bytes that Create was told of have been added. Gives the file's version.
  virtual absl::StatusOr<std::string> Finish() = 0;
};

// A file for a writer that needs one on this machine; Put copies it to its remote path.
class StagedFile {
 public:
  virtual ~StagedFile() = default;
  virtual const std::string& local() const = 0;  // opened through roots.h; named as the remote file
  virtual absl::Status Put() = 0;
};

class RemoteFiles {
 public:
  struct File {
    std::string below;  // of List: the path below the folder, "step-5/manifest.json"
    uint64_t bytes = 0;
    std::string version;                        // another one after it was written again with other bytes
    absl::Time changed = absl::InfinitePast();  // of Look
  };
  using Room = std::function<char*(uint64_t bytes)>;  // where so many bytes are wanted

  virtual ~RemoteFiles() = default;
  // Whether the path lies in a remote root.
  virtual bool Has(absl::string_view path) const = 0;
  // All files below, at any depth; empty: there are none. Errors: RESOURCE_EXHAUSTED: too many.
  virtual absl::StatusOr<std::vector<File>> List(const std::string& folder) = 0;
  // nullopt: there is none.
  virtual absl::StatusOr<std::optional<File>> Look(const std::string& path) = 0;
  // The whole file, into `room`. Errors: NOT_FOUND; INVALID_ARGUMENT: more than bytes_max.
  virtual absl::Status Read(const std::string& path, uint64_t bytes_max, const Room& room) = 0;
  // These bytes of the file, as it was looked at. Errors: INVALID_ARGUMENT: it is shorter; FAILED_PRECONDITION: it is
  // another one now.
  virtual absl::StatusOr<std::string> ReadRange(const std::string& path, const File& file, uint64_t begin,
                                                uint64_t bytes) = 0;
  // Waits at most wait_max until a copy is here. Errors: those of RemoteData::Fetch.
  virtual absl::StatusOr<std::shared_ptr<const LocalCopy>> Fetch(const std::string& path, absl::Duration wait_max) = 0;

  // Writes a file into the folder and removes it. Ends soon after `until`: somebody waits.
  virtual absl::Status TryToWrite(const std::string& folder, absl::Time until) = 0;
  // A file of so many bytes, in place of one that is there.
  virtual absl::StatusOr<std::unique_ptr<RemoteUpload>> Create(const std::string& path, uint64_t bytes) = 0;
  // A small file, where there is none. Errors: ALREADY_EXISTS: with other bytes.
  virtual absl::Status PutNew(const std::string& path, const std::string& bytes) = 0;
  // A small file, in place of the one that has this version. Errors: ABORTED: it is another one now, or gone; a server
  // that cannot tell is asked before.
  virtual absl::Status PutOver(const std::string& path, const std::string& version, const std::string& bytes) = 0;
  virtual absl::Status Copy(const std::string& from, const std::string& to) = 0;
  // OK if there is none.
  virtual absl::Status Remove(const std::string& path) = 0;
  // Removes what is left of files below the folder that somebody began and did not finish, where `which` says so of the
  // path below it. Who still writes one gets an error.
  virtual absl::Status RemoveUnfinished(const std::string& folder,
                                        const std::function<bool(absl::string_view below)>& which) = 0;
  // Errors: those of the system.
  virtual absl::StatusOr<std::unique_ptr<StagedFile>> Stage(const std::string& path) = 0;

  // The same files for one job: a Stop of what is given ends its calls alone, a Stop of this those of all jobs. This
  // outlives it.
  virtual std::shared_ptr<RemoteFiles> ForJob() = 0;
  // What is under way ends with CANCELLED within about a second, and so does every later call at once. What was being
  // written is left as a writer that dies leaves it: RemoveUnfinished finds it.
  virtual void Stop() = 0;
};

}  // namespace cairn
