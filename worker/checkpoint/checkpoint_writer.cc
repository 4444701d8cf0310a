#include "worker/checkpoint/checkpoint_writer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/formats/safetensors.h"
#include "common/model/checkpoint_name.h"
#include "common/model/optimizer_slots.h"
#include "common/model/optimizer_variables.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

constexpr int kPartialTries = 8;
// For file systems without locks: a directory that was not written to for this long is abandoned.
constexpr absl::Duration kAbandonedAfter = absl::Hours(1);

std::string WriterOf(const CheckpointManifest& manifest) {
  return absl::StrCat(manifest.spec.name(), "-", manifest.job_id);
}

absl::Status Sync(const std::string& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC);
  if (fd < 0) return FileError(path, "cannot open");
  const int failed = ::fsync(fd) != 0 ? errno : 0;
  ::close(fd);
  // Some network file systems cannot flush a directory.
  if (failed != 0 && !((flags & O_DIRECTORY) && failed == EINVAL)) return FileError(path, "cannot flush", failed);
  return absl::OkStatus();
}

absl::Status SyncDirectory(const std::string& path) { return Sync(path, O_RDONLY | O_DIRECTORY); }

absl::Status WriteText(const std::string& path, const std::string& text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return FileError(path, "cannot create");
  absl::Status status;
  for (size_t at = 0; at < text.size() && status.ok();) {
    const ssize_t n = ::write(fd, text.data() + at, text.size() - at);
    if (n < 0 && errno != EINTR) status = FileError(path, "cannot write");
    if (n > 0) at += static_cast<size_t>(n);
  }
  if (status.ok() && ::fsync(fd) != 0) status = FileError(path, "cannot flush");
  ::close(fd);
  return status;
}

absl::Status MakeDirectory(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  return error ? FileError(path, "cannot create the directory", error.value()) : absl::OkStatus();
}

// The last write to the directory or its files; InfinitePast: it does not exist.
absl::Time LastWrite(const std::string& path) {
  absl::Time last = absl::InfinitePast();
  const auto look = [&](const std::string& at) {
    struct stat found;
    if (::stat(at.c_str(), &found) == 0) last = std::max(last, absl::TimeFromTimespec(found.st_mtim));
  };
  look(path);
  std::error_code error;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) look(it->path().string());
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
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return;
    // The lock is held until the directory is removed, so that no writer starts there.
    const int busy = ::flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
    if (busy == 0 || (busy != EWOULDBLOCK && absl::Now() - LastWrite(path) > kAbandonedAfter)) RemoveUnfinished(path);
    ::close(fd);
  }

  Partial(const std::string& dir, std::string name) : name_(std::move(name)), path_(absl::StrCat(dir, "/", name_)) {}
  Partial(const Partial&) = delete;
  Partial& operator=(const Partial&) = delete;
  ~Partial() {
    RemoveUnfinished(path_);
    if (fd_ >= 0) ::close(fd_);
  }
  const std::string& name() const { return name_; }
  const std::string& path() const { return path_; }

 private:
  // ABORTED: another process took it for an abandoned one before it could be locked.
  absl::Status Lock() {
    CAIRN_RETURN_IF_ERROR(MakeDirectory(path_));
    fd_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const auto gone = [&] {
      return absl::AbortedError(absl::StrCat(path_, ": was removed by another process; try again"));
    };
    if (fd_ < 0) return errno == ENOENT ? gone() : FileError(path_, "cannot open");
    if (::flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return gone();
    struct stat found;
    if (::fstat(fd_, &found) != 0) return FileError(path_, "cannot be looked at");
    return found.st_nlink == 0 ? gone() : absl::OkStatus();
  }

  const std::string name_;  // relative to its directory
  const std::string path_;
  int fd_ = -1;
};

void RemoveLeftovers(const std::string& dir, const std::string& writer) {
  const std::string own = absl::StrCat(kPartialPrefix, writer, "-"), old = absl::StrCat(kPartialPrefix, kRemoved, "-");
  std::error_code error;
  std::vector<std::string> left;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (absl::StartsWith(name, own) || absl::StartsWith(name, old)) left.push_back(it->path().string());
  }
  for (const std::string& path : left) Partial::RemoveIfAbandoned(path);
}

std::vector<SafetensorView> ModelTensors(const CheckpointContents& c) {
  std::vector<SafetensorView> tensors;
  for (const Variable& v : c.graph->variables()) {
    tensors.push_back(
        {v.name, v.shape, c.values.floats().subspan(static_cast<size_t>(v.offset), static_cast<size_t>(v.size))});
  }
  return tensors;
}

std::vector<SafetensorView> OptimizerTensors(const CheckpointContents& c) {
  const v1::Optimizer& optimizer = c.manifest.spec.optimizer();
  CAIRN_CHECK(SlotNames(optimizer).size() == c.slots.size(), "slots of another optimizer");
  std::vector<SafetensorView> tensors;
  for (const Variable& v : c.graph->variables()) {
    if (v.kind != VariableKind::kTrainable) continue;
    for (const SlotTensor& t : SlotTensorsOf(optimizer, v)) {
      const absl::Span<const float> slot = c.slots[static_cast<size_t>(t.slot)].floats();
      tensors.push_back(
          {absl::StrCat(v.name, "/", t.name), t.shape,
           slot.subspan(static_cast<size_t>(v.offset + t.offset), static_cast<size_t>(NumElements(t.shape)))});
    }
  }
  return tensors;
}

absl::Status WriteTensors(const std::string& dir, const char* name, const std::vector<SafetensorView>& tensors,
                          CheckpointManifest& manifest) {
  const std::string path = absl::StrCat(dir, "/", name);
  CheckpointFile& file = manifest.files[name];
  CAIRN_RETURN_IF_ERROR(WriteSafetensors(
      path, tensors, {{"format", "cairn"}, {"job", manifest.spec.name()}, {"step", absl::StrCat(manifest.step)}},
      &file.xxh3_128));
  std::error_code error;
  file.bytes = fs::file_size(path, error);
  return error ? FileError(path, "cannot be looked at", error.value()) : absl::OkStatus();
}

absl::Status WriteFiles(const std::string& dir, CheckpointContents& c) {
  CAIRN_RETURN_IF_ERROR(WriteTensors(dir, kModelFile, ModelTensors(c), c.manifest));
  CAIRN_RETURN_IF_ERROR(WriteTensors(dir, kOptimizerFile, OptimizerTensors(c), c.manifest));
  CAIRN_RETURN_IF_ERROR(WriteText(absl::StrCat(dir, "/", kManifestFile), EncodeManifest(c.manifest)));
  return SyncDirectory(dir);
}

absl::Status LinkFiles(const std::string& from, const std::string& to) {
  for (const char* name : {kModelFile, kOptimizerFile, kManifestFile}) {
    const std::string source = absl::StrCat(from, "/", name), target = absl::StrCat(to, "/", name);
    if (::link(source.c_str(), target.c_str()) == 0) continue;
    if (errno == ENOENT) return FileError(source, "is not there");
    std::error_code error;
    fs::copy_file(source, target, error);
    if (error) return FileError(target, "cannot be copied", error.value());
    CAIRN_RETURN_IF_ERROR(Sync(target, O_RDONLY));
  }
  return SyncDirectory(to);
}

}  // namespace

absl::StatusOr<std::string> WriteCheckpoint(const std::string& dir, CheckpointContents contents, int64_t now_unix_ms) {
  contents.manifest.library_version = CAIRN_VERSION;
  contents.manifest.written_unix_ms = now_unix_ms;
  const CheckpointManifest& manifest = contents.manifest;
  const std::string writer = WriterOf(manifest), name = CheckpointName(manifest.step);
  CAIRN_RETURN_IF_ERROR(MakeDirectory(dir));
  RemoveLeftovers(dir, writer);
  CAIRN_ASSIGN_OR_RETURN(
      const OwnCheckpoints own,
      OwnCheckpoints::Open(dir, CheckpointOwner::Of(manifest.job_id, manifest.submitted_unix_ms, manifest.spec)));
  CAIRN_ASSIGN_OR_RETURN(const std::unique_ptr<Partial> partial, Partial::Make(dir, writer, name));
  CAIRN_RETURN_IF_ERROR(WriteFiles(partial->path(), contents));
  CAIRN_RETURN_IF_ERROR(own.Put(partial->name(), name));
  CAIRN_RETURN_IF_ERROR(SyncDirectory(dir));
  return absl::StrCat(dir, "/", name);
}

absl::StatusOr<std::string> KeepAsBest(const std::string& dir, int64_t step, const CheckpointOwner& owner) {
  CAIRN_ASSIGN_OR_RETURN(const OwnCheckpoints own, OwnCheckpoints::Open(dir, owner));
  const std::string name = CheckpointName(step);
  CAIRN_RETURN_IF_ERROR(own.Check(name));
  CAIRN_ASSIGN_OR_RETURN(const std::unique_ptr<Partial> partial, Partial::Make(dir, kRemoved, kBestCheckpoint));
  CAIRN_RETURN_IF_ERROR(LinkFiles(absl::StrCat(dir, "/", name), partial->path()));
  CAIRN_RETURN_IF_ERROR(own.Put(partial->name(), kBestCheckpoint));
  CAIRN_RETURN_IF_ERROR(SyncDirectory(dir));
  return absl::StrCat(dir, "/", kBestCheckpoint);
}

// Its files are hard links to those of a checkpoint, with the same times.
absl::Time BestKeptAt(const std::string& dir) {
  struct stat found;
  const std::string path = absl::StrCat(dir, "/", kBestCheckpoint);
  return ::stat(path.c_str(), &found) == 0 ? absl::TimeFromTimespec(found.st_mtim) : absl::InfinitePast();
}

}  // namespace cairn
