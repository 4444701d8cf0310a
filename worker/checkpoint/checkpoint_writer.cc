#include "worker/checkpoint/checkpoint_writer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/files.h"
#include "common/base/roots.h"
#include "common/formats/safetensors.h"
#include "common/model/checkpoint_name.h"
#include "worker/checkpoint/checkpoint_contents.h"

namespace cairn {
namespace {

constexpr int kPartialTries = 8;
// For file systems without locks: a directory that was not written to for this long is abandoned.
constexpr absl::Duration kAbandonedAfter = absl::Hours(1);

std::string WriterOf(const CheckpointManifest& manifest) {
  return absl::StrCat(manifest.spec.name(), "-", manifest.job_id);
}

absl::Status WriteText(const std::string& path, absl::string_view text) {
  return WriteFileWhole(path, [&](const std::string& beside) -> absl::Status {
    const FileDescriptor file = CreateBeside(beside);
    if (file.get() < 0) return FileError(path, "cannot create");
    return WriteAll(file.get(), text, path);
  });
}

// The last write to the directory or its files; InfinitePast: it does not exist.
absl::Time LastWrite(const std::string& path) {
  absl::Time last = InfoOf(path).changed;
  for (const FolderEntry& entry : EntriesOf(path))
    last = std::max(last, InfoOf(absl::StrCat(path, "/", entry.name)).changed);
  return last;
}

// A temporary directory in which a checkpoint is written, next to its final place. It is locked while it is written, so
// that another chief of the job does not take it for one that a killed writer left. What is left in it at the end is
// removed.
class Partial {
 public:
  static absl::StatusOr<std::unique_ptr<Partial>> Make(const std::string& dir, const std::string& owner,
                                                       absl::string_view name) {
    absl::Status status;
    for (int i = 0; i < kPartialTries; ++i) {
      auto partial = std::make_unique<Partial>(dir, PartialName(owner, name));
      status = partial->Lock();
      if (status.ok()) return partial;
      if (!absl::IsAborted(status)) return status;
    }
    return status;
  }
  static void RemoveIfAbandoned(const std::string& path) {
    const FileDescriptor directory = OpenPath(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, Access::kWrite);
    if (directory.get() < 0) return;
    // The lock is held until the directory is removed, so that no writer starts there.
    const int busy = ::flock(directory.get(), LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
    if (busy == 0 || (busy != EWOULDBLOCK && absl::Now() - LastWrite(path) > kAbandonedAfter)) RemoveUnfinished(path);
  }

  Partial(const std::string& dir, std::string name) : name_(std::move(name)), path_(absl::StrCat(dir, "/", name_)) {}
  Partial(const Partial&) = delete;
  Partial& operator=(const Partial&) = delete;
  ~Partial() { RemoveUnfinished(path_); }
  const std::string& name() const { return name_; }
  const std::string& path() const { return path_; }

 private:
  // ABORTED: another process took it for an abandoned one before it could be locked.
  absl::Status Lock() {
    CAIRN_RETURN_IF_ERROR(MakeFolders(path_));
    lock_ = OpenPath(path_, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, Access::kWrite);
    const auto gone = [&] {
      return absl::AbortedError(absl::StrCat(path_, ": was removed by another process; try again"));
    };
    if (lock_.get() < 0) return errno == ENOENT ? gone() : FileError(path_, "cannot open");
    if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return gone();
    struct stat found;
    if (::fstat(lock_.get(), &found) != 0) return FileError(path_, "cannot be looked at");
    return found.st_nlink == 0 ? gone() : absl::OkStatus();
  }

  const std::string name_;  // relative to its directory
  const std::string path_;
  FileDescriptor lock_;
};

void RemoveLeftovers(const std::string& dir, const std::string& writer) {
  const std::string own = absl::StrCat(kPartialPrefix, writer, "-"), old = absl::StrCat(kPartialPrefix, kRemoved, "-");
  for (const FolderEntry& entry : EntriesOf(dir)) {
    if (absl::StartsWith(entry.name, own) || absl::StartsWith(entry.name, old))
      Partial::RemoveIfAbandoned(absl::StrCat(dir, "/", entry.name));
  }
}

absl::Status WriteTensors(const std::string& dir, const char* name, const std::vector<SafetensorView>& tensors,
                          CheckpointManifest& manifest) {
  const std::string path = absl::StrCat(dir, "/", name);
  CheckpointFile& file = manifest.files[name];
  CAIRN_RETURN_IF_ERROR(WriteSafetensors(path, tensors, TensorsMetadata(manifest), &file.xxh3_128));
  const PathInfo info = InfoOf(path);
  file.bytes = info.bytes;
  return info.kind == PathInfo::kFile ? absl::OkStatus() : FileError(path, "is not there any more", ENOENT);
}

absl::Status WriteFiles(const std::string& dir, CheckpointContents& c) {
  CAIRN_RETURN_IF_ERROR(WriteTensors(dir, kModelFile, ModelTensors(c), c.manifest));
  CAIRN_RETURN_IF_ERROR(WriteTensors(dir, kOptimizerFile, OptimizerTensors(c), c.manifest));
  return WriteText(absl::StrCat(dir, "/", kManifestFile), EncodeManifest(c.manifest));
}

absl::Status LinkFiles(const std::string& from, const std::string& to) {
  for (const char* name : {kModelFile, kOptimizerFile, kManifestFile}) {
    const std::string source = absl::StrCat(from, "/", name), target = absl::StrCat(to, "/", name);
    if (LinkFile(source, target) == 0) continue;
    if (errno == ENOENT) return FileError(source, "is not there");
    CAIRN_ASSIGN_OR_RETURN(const Buffer bytes, ReadFileBytes(source));
    CAIRN_RETURN_IF_ERROR(WriteText(target, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  }
  return SyncFolder(to);
}

}  // namespace

absl::StatusOr<std::string> WriteCheckpoint(const std::string& dir, CheckpointContents contents, int64_t now_unix_ms,
                                            std::vector<std::string>* set_aside) {
  StampManifest(now_unix_ms, contents.manifest);
  const CheckpointManifest& manifest = contents.manifest;
  const std::string writer = WriterOf(manifest), name = CheckpointName(manifest.step);
  CAIRN_RETURN_IF_ERROR(MakeFolders(dir));
  RemoveLeftovers(dir, writer);
  CAIRN_ASSIGN_OR_RETURN(
      const OwnCheckpoints own,
      OwnCheckpoints::Open(dir, CheckpointOwner::Of(manifest.job_id, manifest.submitted_unix_ms, manifest.spec)));
  CAIRN_ASSIGN_OR_RETURN(const std::unique_ptr<Partial> partial, Partial::Make(dir, writer, name));
  CAIRN_RETURN_IF_ERROR(WriteFiles(partial->path(), contents));
  CAIRN_RETURN_IF_ERROR(own.Put(partial->name(), name, set_aside));
  CAIRN_RETURN_IF_ERROR(SyncFolder(dir));
  return absl::StrCat(dir, "/", name);
}

absl::StatusOr<std::string> KeepAsBest(const std::string& dir, int64_t step, const CheckpointOwner& owner,
                                       std::vector<std::string>* set_aside) {
  CAIRN_ASSIGN_OR_RETURN(const OwnCheckpoints own, OwnCheckpoints::Open(dir, owner));
  const std::string name = CheckpointName(step);
  CAIRN_RETURN_IF_ERROR(own.Check(name));
  CAIRN_ASSIGN_OR_RETURN(const std::unique_ptr<Partial> partial, Partial::Make(dir, kRemoved, kBestCheckpoint));
  CAIRN_RETURN_IF_ERROR(LinkFiles(absl::StrCat(dir, "/", name), partial->path()));
  CAIRN_RETURN_IF_ERROR(own.Put(partial->name(), kBestCheckpoint, set_aside));
  CAIRN_RETURN_IF_ERROR(SyncFolder(dir));
  return absl::StrCat(dir, "/", kBestCheckpoint);
}

// Its files are hard links to those of a checkpoint, with the same times.
absl::Time BestKeptAt(const std::string& dir) { return InfoOf(absl::StrCat(dir, "/", kBestCheckpoint)).changed; }

}  // namespace cairn
