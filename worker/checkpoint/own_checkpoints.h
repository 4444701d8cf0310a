// OwnCheckpoints: what a job may replace and remove in its directory of checkpoints: its own, as their manifests say.
//
// Blocking; any thread. Several processes may use one directory. Invariants:
//   1. Names are those of common/model/checkpoint_name.h, directly in the directory: no peer says what is removed.
//   2. No symbolic link in the directory is followed, and what is removed is what was looked at, whatever has taken its
//      name meanwhile: files are removed from open directories, not by their paths.
//   3. Of a directory only a checkpoint's files are removed, and itself where nothing else is in it. What a user has
//      put beside them stays.
//   4. A checkpoint of another job is set aside where this job writes one of that name; what is no checkpoint is left
//      alone.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "cairn/v1/job.pb.h"
#include "common/base/status.h"
#include "common/formats/plain_file.h"
#include "worker/checkpoint/checkpoint_manifest.h"

namespace cairn {

// Which job a checkpoint belongs to: its number and the time of its submission, for another cluster begins to count
// anew. One with backup_and_restore owns those that earlier submissions of it have left in the backup directory, too:
// they are the same training.
struct CheckpointOwner {
  uint64_t job_id = 0;
  int64_t submitted_unix_ms = 0;
  std::string name;
  std::string backup_dir;  // of backup_and_restore, or empty

  static CheckpointOwner Of(uint64_t job_id, int64_t submitted_unix_ms, const v1::JobSpec& spec);
  bool Owns(const CheckpointManifest& manifest) const;
};

class OwnCheckpoints {
 public:
  // Errors: NOT_FOUND, and the system's.
  static absl::StatusOr<OwnCheckpoints> Open(const std::string& directory, CheckpointOwner owner);

  // OK: this name has a checkpoint of the job. Its data may be torn: it is for the manifest to say whose it is. Errors:
  // NOT_FOUND; FAILED_PRECONDITION says what is there instead.
  absl::Status Check(const std::string& name) const;
  // The directory `partial`, beside it, takes this name, at once where the file system can do that.
  absl::Status Put(const std::string& partial, const std::string& name) const;
  // The name goes first, so that half of it is never taken for a whole one. Fine where there is none.
  absl::Status Remove(const std::string& name) const;
  // All of the job, and the directory where nothing is left in it.
  absl::Status RemoveAll() const;

 private:
  struct Found {
    FileDescriptor directory;
    CheckpointManifest manifest;
  };

  OwnCheckpoints(std::string path, CheckpointOwner owner, FileDescriptor directory)
      : path_(std::move(path)), owner_(std::move(owner)), directory_(std::move(directory)) {}
  std::string PathOf(absl::string_view name) const;
  absl::StatusOr<Found> Look(const std::string& name) const;
  absl::StatusOr<Found> LookForOwn(const std::string& name) const;
  // Renames what was found; another directory that has its name now gets it back.
  absl::Status Rename(const Found& found, const std::string& name, const std::string& to, unsigned flags) const;
  absl::Status Replace(const Found& found, const std::string& partial, const std::string& name) const;

  std::string path_;
  CheckpointOwner owner_;
  FileDescriptor directory_;
};

// A name for what is being written or removed: of this process and moment, so that two chiefs do not meet.
std::string PartialName(absl::string_view owner, absl::string_view name);
inline constexpr char kPartialPrefix[] = ".partial-";
inline constexpr char kRemoved[] = ",removed";  // as the owner: no job has a comma in its name

// A directory that a checkpoint was written in, or was to be: its files, and itself where nothing else is in it.
void RemoveUnfinished(const std::string& path);

}  // namespace cairn
