#include "worker/checkpoint/own_checkpoints.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/roots.h"
#include "common/model/callback_check.h"
#include "common/model/checkpoint_name.h"
#include "worker/limits.h"

namespace cairn {
namespace {

constexpr int kOpenDirectory = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

std::string BackupDirOf(const v1::JobSpec& spec) {
  const v1::BackupAndRestore* backup = BackupOf(spec);
  return backup == nullptr ? "" : backup->backup_dir();
}

// Includes files that a killed writer had not renamed yet (WriteFileWhole), also of earlier versions.
bool IsCheckpointFile(absl::string_view name) {
  for (const char* file : {kManifestFile, kModelFile, kOptimizerFile}) {
    if (name == file || absl::StartsWith(name, absl::StrCat(file, kPartialPrefix))) return true;
    if (!NonceOf(file, name).empty()) return true;  // copied from S3
    if (absl::StartsWith(name, kPartialPrefix) && absl::EndsWith(name, absl::StrCat("-", file))) return true;
  }
  return false;
}

std::vector<std::string> EntriesOf(const FileDescriptor& directory) {
  std::vector<std::string> names;
  DIR* const listing = ::fdopendir(::openat(directory.get(), ".", kOpenDirectory));
  if (listing == nullptr) return names;
  while (const dirent* entry = ::readdir(listing)) {
    const absl::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  ::closedir(listing);
  std::sort(names.begin(), names.end());
  return names;
}

bool HoldsOnlyCheckpointFiles(const FileDescriptor& directory) {
  const std::vector<std::string> names = EntriesOf(directory);
  return std::all_of(names.begin(), names.end(), [](const std::string& name) { return IsCheckpointFile(name); });
}

// The manifest first: what remains is then not a checkpoint.
absl::Status RemoveFiles(const FileDescriptor& directory, const std::string& path) {
  ::unlinkat(directory.get(), kManifestFile, 0);
  absl::Status status;
  for (const std::string& name : EntriesOf(directory)) {
    if (!IsCheckpointFile(name) || ::unlinkat(directory.get(), name.c_str(), 0) == 0 || errno == ENOENT) continue;
    status.Update(FileError(absl::StrCat(path, "/", name), "cannot be removed"));
  }
  return status;
}

bool IsSame(const FileDescriptor& directory, int parent, const std::string& name) {
  struct stat a, b;
  return ::fstat(directory.get(), &a) == 0 && ::fstatat(parent, name.c_str(), &b, AT_SYMLINK_NOFOLLOW) == 0 &&
         a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

int RenameAt(int directory, const std::string& from, const std::string& to, unsigned flags) {
  if (flags == 0)
    return ::renameat(directory, from.c_str(), directory, to.c_str());  // network file systems do not support flags
  return ::renameat2(directory, from.c_str(), directory, to.c_str(), flags);
}

absl::StatusOr<CheckpointManifest> ReadManifest(const FileDescriptor& directory, const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const Buffer bytes, ReadFileBytesAt(directory.get(), kManifestFile, path, kManifestBytesMax));
  return ParseManifest({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

template <typename... Args>
absl::Status LeftAlone(const Args&... args) {
  return absl::FailedPreconditionError(
      absl::StrCat(args..., ". It is left alone: move it away, or give the job another checkpoints.dir"));
}

}  // namespace

CheckpointOwner CheckpointOwner::Of(uint64_t job_id, int64_t submitted_unix_ms, const v1::JobSpec& spec) {
  return {job_id, submitted_unix_ms, spec.name(), BackupDirOf(spec)};
}

bool CheckpointOwner::Owns(const CheckpointManifest& manifest) const {
  if (manifest.job_id == job_id && manifest.submitted_unix_ms == submitted_unix_ms) return true;
  return !backup_dir.empty() && manifest.spec.name() == name && BackupDirOf(manifest.spec) == backup_dir;
}

absl::StatusOr<CheckpointManifest> RecognizeCheckpoint(const std::string& path, absl::string_view name,
                                                       absl::StatusOr<CheckpointManifest> manifest) {
  if (!manifest.ok())
    return LeftAlone(path, ": is not a checkpoint that can be recognized (", manifest.status().message(), ")");
  if (name == kBestCheckpoint || name == CheckpointName(manifest->step)) return manifest;
  return LeftAlone(path, ": its ", kManifestFile, " is of step ", manifest->step);
}

absl::Status CheckOwner(const std::string& path, const CheckpointManifest& manifest, const CheckpointOwner& owner) {
  if (owner.Owns(manifest)) return absl::OkStatus();
  return LeftAlone(path, ": is a checkpoint of another job, ", manifest.job_id, " (\"", manifest.spec.name(), "\")");
}

std::string NameAside(absl::string_view name, const CheckpointManifest& manifest) {
  return absl::StrFormat("former-%s-of-job-%d-%d", name, manifest.job_id, manifest.submitted_unix_ms);
}

std::string TellSetAside(const std::string& path, const CheckpointManifest& manifest, const std::string& aside) {
  std::string text = absl::StrFormat("%s was a checkpoint of another job, %d (\"%s\"); it is kept as %s", path,
                                     manifest.job_id, manifest.spec.name(), aside);
  LogWarning("%s", text);
  return text;
}

std::string PartialName(absl::string_view owner, absl::string_view name) {
  static std::atomic<uint64_t> serial{0};
  return absl::StrCat(kPartialPrefix, owner, "-", name, "-", ::getpid(), "-", ++serial);
}

void RemoveUnfinished(const std::string& path) {
  const FileDescriptor directory = OpenPath(path, kOpenDirectory, Access::kWrite);
  if (directory.get() < 0) return;
  RemoveFiles(directory, path).IgnoreError();
  RemoveFolder(path);
}

absl::StatusOr<OwnCheckpoints> OwnCheckpoints::Open(const std::string& directory, CheckpointOwner owner) {
  FileDescriptor opened = OpenPath(directory, O_RDONLY | O_DIRECTORY, Access::kWrite);
  if (opened.get() < 0) return FileError(directory, "cannot open");
  return OwnCheckpoints(directory, std::move(owner), std::move(opened));
}

std::string OwnCheckpoints::PathOf(absl::string_view name) const { return absl::StrCat(path_, "/", name); }

absl::StatusOr<OwnCheckpoints::Found> OwnCheckpoints::Look(const std::string& name) const {
  const std::string path = PathOf(name);
  Found found{FileDescriptor(::openat(directory_.get(), name.c_str(), kOpenDirectory)), {}};
  if (found.directory.get() < 0) {
    if (errno == ELOOP || errno == ENOTDIR) return LeftAlone(path, ": is a file or a symbolic link, not a checkpoint");
    return FileError(path, "cannot open");
  }
  CAIRN_ASSIGN_OR_RETURN(found.manifest, RecognizeCheckpoint(path, name, ReadManifest(found.directory, path)));
  return found;
}

absl::StatusOr<OwnCheckpoints::Found> OwnCheckpoints::LookForOwn(const std::string& name) const {
  CAIRN_ASSIGN_OR_RETURN(Found found, Look(name));
  CAIRN_RETURN_IF_ERROR(CheckOwner(PathOf(name), found.manifest, owner_));
  return found;
}

absl::Status OwnCheckpoints::Check(const std::string& name) const { return LookForOwn(name).status(); }

absl::Status OwnCheckpoints::Rename(const Found& found, const std::string& name, const std::string& to,
                                    unsigned flags) const {
  if (RenameAt(directory_.get(), name, to, flags) != 0) return FileError(PathOf(name), "cannot be renamed");
  if (IsSame(found.directory, directory_.get(), to)) return absl::OkStatus();
  RenameAt(directory_.get(), to, name, flags);
  return absl::AbortedError(absl::StrCat(PathOf(name), ": was replaced by another process meanwhile"));
}

// A network file system may not support exchanging two names: then the name is missing for a moment.
absl::Status OwnCheckpoints::Replace(const Found& found, const std::string& partial, const std::string& name) const {
  std::string former = partial;
  absl::Status status = Rename(found, name, former, RENAME_EXCHANGE);
  if (absl::IsInvalidArgument(status) || absl::IsUnimplemented(status)) {
    former = PartialName(kRemoved, name);
    CAIRN_RETURN_IF_ERROR(Rename(found, name, former, 0));
    status = absl::OkStatus();
    if (RenameAt(directory_.get(), partial, name, 0) != 0) {
      status = FileError(PathOf(name), "cannot rename to it");
      RenameAt(directory_.get(), former, name, 0);
    }
  }
  CAIRN_RETURN_IF_ERROR(status);
  const FileDescriptor replaced_by(::openat(directory_.get(), name.c_str(), kOpenDirectory));
  for (const std::string& entry : EntriesOf(found.directory)) {
    if (IsCheckpointFile(entry)) continue;
    ::renameat2(found.directory.get(), entry.c_str(), replaced_by.get(), entry.c_str(), RENAME_NOREPLACE);
  }
  CAIRN_RETURN_IF_ERROR(RemoveFiles(found.directory, PathOf(former)));
  ::unlinkat(directory_.get(), former.c_str(), AT_REMOVEDIR);
  return absl::OkStatus();
}

absl::Status OwnCheckpoints::Put(const std::string& partial, const std::string& name,
                                 std::vector<std::string>* set_aside) const {
  if (RenameAt(directory_.get(), partial, name, 0) == 0) return absl::OkStatus();
  if (errno != ENOTEMPTY && errno != EEXIST && errno != ENOTDIR) return FileError(PathOf(name), "cannot rename to it");
  CAIRN_ASSIGN_OR_RETURN(const Found found, Look(name));
  if (owner_.Owns(found.manifest)) return Replace(found, partial, name);
  const std::string aside = NameAside(name, found.manifest);
  CAIRN_RETURN_IF_ERROR(Rename(found, name, aside, RENAME_NOREPLACE));
  std::string text = TellSetAside(PathOf(name), found.manifest, aside);
  if (set_aside != nullptr) set_aside->push_back(std::move(text));
  if (RenameAt(directory_.get(), partial, name, 0) == 0) return absl::OkStatus();
  return FileError(PathOf(name), "cannot rename to it");
}

absl::Status OwnCheckpoints::Remove(const std::string& name) const {
  const absl::StatusOr<Found> found = LookForOwn(name);
  if (absl::IsNotFound(found.status())) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(found.status());
  std::string aside = name;
  if (HoldsOnlyCheckpointFiles(found->directory)) {
    aside = PartialName(kRemoved, name);
    CAIRN_RETURN_IF_ERROR(Rename(*found, name, aside, 0));
  }
  CAIRN_RETURN_IF_ERROR(RemoveFiles(found->directory, PathOf(aside)));
  ::unlinkat(directory_.get(), aside.c_str(), AT_REMOVEDIR);  // fails if it contains anything else
  return absl::OkStatus();
}

absl::Status OwnCheckpoints::RemoveAll() const {
  absl::Status status;
  for (const std::string& name : EntriesOf(directory_)) {
    int64_t step = 0;
    absl::string_view digits = name;
    const bool of_step = absl::ConsumePrefix(&digits, kStepPrefix) && absl::SimpleAtoi(digits, &step);
    if (name != kBestCheckpoint && !of_step) continue;
    status.Update(Remove(name));
  }
  RemoveFolder(path_);
  return status;
}

}  // namespace cairn
