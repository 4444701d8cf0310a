// OwnCheckpoints: the checkpoints in a directory that a job may replace and remove: its own, by their manifests.
//
// Blocking; any thread. Several processes may use one directory. Invariants:
//   1. Only names of common/model/checkpoint_name.h directly in the directory are touched: no peer chooses a path.
//   2. Symbolic links in the directory are not followed, and the directory that was checked is the one that is removed,
//      even if another has taken its name: files are removed through open directories, not by path.
//   3. Only a checkpoint's files are removed, and their directory if nothing else is in it. Files that a user has
//      added stay.
//   4. A checkpoint of another job is set aside where this job writes one of that name; anything that is not a
//      checkpoint is left alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "cairn/v1/job.pb.h"
#include "common/base/status.h"
#include "common/formats/plain_file.h"
#include "worker/checkpoint/checkpoint_manifest.h"

namespace cairn {

// The job that a checkpoint belongs to: its id and submission time, since every cluster counts ids from the start. A
// job with backup_and_restore also owns the checkpoints that earlier submissions of it left in the backup directory,
// since they are the same training.
struct CheckpointOwner {
  uint64_t job_id = 0;
  int64_t submitted_unix_ms = 0;
  std::string name;
  std::string backup_dir;  // of backup_and_restore, or empty

  static CheckpointOwner Of(uint64_t job_id, int64_t submitted_unix_ms, const v1::JobSpec& spec);
  bool Owns(const CheckpointManifest& manifest) const;
};

// What a manifest that stands at `path`, the checkpoint `name`, says of it. Errors: FAILED_PRECONDITION: it is none
// that can be recognized, or of another step.
absl::StatusOr<CheckpointManifest> RecognizeCheckpoint(const std::string& path, absl::string_view name,
                                                       absl::StatusOr<CheckpointManifest> manifest);
// FAILED_PRECONDITION: it is another job's.
absl::Status CheckOwner(const std::string& path, const CheckpointManifest& manifest, const CheckpointOwner& owner);
// The name under which a checkpoint of another job is kept.
std::string NameAside(absl::string_view name, const CheckpointManifest& manifest);
// Says so in the log. Returns the text, for the user.
std::string TellSetAside(const std::string& path, const CheckpointManifest& manifest, const std::string& aside);

class OwnCheckpoints {
 public:
  // Errors: NOT_FOUND, and those of the system.
  static absl::StatusOr<OwnCheckpoints> Open(const std::string& directory, CheckpointOwner owner);

  // OK: `name` is a checkpoint of this job. Only the manifest is checked; the data may be torn. Errors:
  // NOT_FOUND; FAILED_PRECONDITION says what is there instead.
  absl::Status Check(const std::string& name) const;
  // Renames the sibling directory `partial` to `name`, atomically where the file system can. set_aside: not null: gets
  // the text of TellSetAside if a checkpoint of another job was renamed.
  absl::Status Put(const std::string& partial, const std::string& name,
                   std::vector<std::string>* set_aside = nullptr) const;
  // Renames it first, so that a half-removed checkpoint is never taken for a complete one. OK if there is none.
  absl::Status Remove(const std::string& name) const;
  // Removes all checkpoints of the job, and the directory if it is then empty.
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
  // Renames the directory that was found. If another one has taken its name meanwhile, that one is renamed back.
  absl::Status Rename(const Found& found, const std::string& name, const std::string& to, unsigned flags) const;
  absl::Status Replace(const Found& found, const std::string& partial, const std::string& name) const;

  std::string path_;
  CheckpointOwner owner_;
  FileDescriptor directory_;
};

// A temporary name for a directory that is being written or removed; unique, so that two chiefs do not collide.
std::string PartialName(absl::string_view owner, absl::string_view name);
inline constexpr char kPartialPrefix[] = ".partial-";
inline constexpr char kRemoved[] = ",removed";  // used as the owner: no job has a comma in its name

// Removes the checkpoint's files from a directory that was being written, and the directory if it is then empty.
void RemoveUnfinished(const std::string& path);

}  // namespace cairn
