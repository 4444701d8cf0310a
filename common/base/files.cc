#include "common/base/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/roots.h"

namespace cairn {
namespace {

struct SplitPath {
  std::string folder;  // "." of a name alone
  std::string name;
};

SplitPath Split(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {".", path};
  return {path.substr(0, slash == 0 ? 1 : slash), path.substr(slash + 1)};
}

FileDescriptor OpenFolder(const std::string& folder, Access access) {
  return OpenPath(folder.empty() ? "." : folder, O_RDONLY | O_DIRECTORY, access);
}

PathInfo::Kind KindOf(mode_t mode) {
  return S_ISREG(mode) ? PathInfo::kFile : S_ISDIR(mode) ? PathInfo::kFolder : PathInfo::kOther;
}

absl::Status SyncOpen(const FileDescriptor& file, absl::string_view path, bool folder) {
  if (file.get() < 0) return FileError(path, "cannot open");
  if (::fsync(file.get()) == 0 || (folder && (errno == EINVAL || errno == ENOTSUP))) return absl::OkStatus();
  return FileError(path, "cannot sync");
}

// Calls `change` with the folder of the path, open, and the name in it.
template <typename Change>
int InFolderOf(const std::string& path, Change change) {
  const SplitPath split = Split(path);
  const FileDescriptor folder = OpenFolder(split.folder, Access::kWrite);
  return folder.get() < 0 ? -1 : change(folder.get(), split.name.c_str());
}

// A name that nobody can prepare a link under.
std::string NameBeside(const std::string& name) {
  std::random_device random;
  return absl::StrFormat(".partial-%d-%08x%08x-%s", ::getpid(), random(), random(), name);
}

}  // namespace

absl::Status FileError(absl::string_view path, absl::string_view what, int error) {
  if (error == EXDEV && HasRoots()) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, ": ", what, ": it leads out of the roots of this process (", RootsText(), "); see --root"));
  }
  return absl::Status(absl::ErrnoToStatus(error, "").code(),
                      absl::StrCat(path, ": ", what, ": ", std::strerror(error)));
}

FileDescriptor::FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

FileDescriptor::~FileDescriptor() {
  if (fd_ < 0) return;
  const int error = errno;  // of what was tried with it
  ::close(fd_);
  errno = error;
}

// ---- what is there ----

PathInfo InfoOf(const std::string& path) {
  struct stat found {};
  if (HasRoots()) {
    const FileDescriptor at = OpenPath(path, O_PATH);
    if (at.get() < 0 || ::fstat(at.get(), &found) != 0) return {};
  } else if (::stat(path.c_str(), &found) != 0) {
    return {};
  }
  return {KindOf(found.st_mode), static_cast<uint64_t>(found.st_size), absl::TimeFromTimespec(found.st_mtim)};
}

absl::StatusOr<std::vector<FolderEntry>> ListFolder(const std::string& folder) {
  FileDescriptor opened = OpenFolder(folder, Access::kRead);
  if (opened.get() < 0) return FileError(folder, "cannot open");
  DIR* const listing = ::fdopendir(::dup(opened.get()));
  if (listing == nullptr) return FileError(folder, "cannot be read");
  std::vector<FolderEntry> entries;
  while (const dirent* entry = ::readdir(listing)) {
    const absl::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    FolderEntry& one = entries.emplace_back();
    one.name = std::string(name);
    if (entry->d_type == DT_REG) one.kind = PathInfo::kFile;
    if (entry->d_type == DT_DIR) one.kind = PathInfo::kFolder;
    if (entry->d_type == DT_LNK || entry->d_type == DT_UNKNOWN) one.kind = InfoOf(folder + "/" + one.name).kind;
  }
  ::closedir(listing);
  std::sort(entries.begin(), entries.end(), [](const FolderEntry& a, const FolderEntry& b) { return a.name < b.name; });
  return entries;
}

std::vector<FolderEntry> EntriesOf(const std::string& folder) {
  absl::StatusOr<std::vector<FolderEntry>> entries = ListFolder(folder);
  return entries.ok() ? *std::move(entries) : std::vector<FolderEntry>();
}

int RemoveFile(const std::string& path) {
  return InFolderOf(path, [](int folder, const char* name) { return ::unlinkat(folder, name, 0); });
}

int RemoveFolder(const std::string& path) {
  return InFolderOf(path, [](int folder, const char* name) { return ::unlinkat(folder, name, AT_REMOVEDIR); });
}

int LinkFile(const std::string& from, const std::string& to) {
  return InFolderOf(from, [&](int from_folder, const char* from_name) {
    return InFolderOf(to,
                      [&](int folder, const char* name) { return ::linkat(from_folder, from_name, folder, name, 0); });
  });
}

// ---- what lasts ----

absl::Status SyncFolder(const std::string& folder) {
  return SyncOpen(OpenFolder(folder, Access::kRead), folder, /*folder=*/true);
}

absl::Status SyncFile(const std::string& path) { return SyncOpen(OpenPath(path, O_RDONLY), path, /*folder=*/false); }

absl::Status MakeFolders(const std::string& folder) {
  if (folder.empty() || folder == ".") return absl::OkStatus();
  if (folder.back() == '/' && folder.size() > 1) return MakeFolders(folder.substr(0, folder.size() - 1));
  const PathInfo::Kind kind = InfoOf(folder).kind;
  if (kind == PathInfo::kFolder) return absl::OkStatus();
  if (kind != PathInfo::kNone) return FileError(folder, "cannot create the folder", ENOTDIR);
  const SplitPath split = Split(folder);
  if (split.name != folder && split.folder != folder) CAIRN_RETURN_IF_ERROR(MakeFolders(split.folder));
  const FileDescriptor above = OpenFolder(split.folder, Access::kWrite);
  if (above.get() < 0) return FileError(folder, "cannot create the folder");
  if (::mkdirat(above.get(), split.name.c_str(), 0777) != 0) {
    const int error = errno;
    if (error != EEXIST) return FileError(folder, "cannot create the folder", error);
    if (!IsFolder(folder)) return FileError(folder, "cannot create the folder", ENOTDIR);  // a link that leads nowhere
  }
  return SyncOpen(above, split.folder, /*folder=*/true);
}

absl::Status WriteFileWhole(const std::string& path,
                            const std::function<absl::Status(const std::string& beside)>& write) {
  const SplitPath split = Split(path);
  const FileDescriptor folder = OpenFolder(split.folder, Access::kWrite);
  if (folder.get() < 0) return FileError(path, "cannot create a file there");
  const std::string name = NameBeside(split.name);
  // With roots the folder that is open, whatever takes its name meanwhile.
  const std::string beside =
      HasRoots() ? absl::StrCat("/proc/self/fd/", folder.get(), "/", name) : absl::StrCat(split.folder, "/", name);
  absl::Status status = write(beside);
  if (status.ok()) {
    const FileDescriptor file(::openat(folder.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    status = SyncOpen(file, path, /*folder=*/false);
  }
  if (status.ok() && ::renameat(folder.get(), name.c_str(), folder.get(), split.name.c_str()) != 0)
    status = FileError(path, "cannot rename to it");
  if (status.ok()) return SyncOpen(folder, split.folder, /*folder=*/true);
  ::unlinkat(folder.get(), name.c_str(), 0);
  return status;
}

FileDescriptor CreateBeside(const std::string& beside) {
  return FileDescriptor(::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
}

absl::Status PutInPlace(const std::string& beside, const std::string& path) {
  absl::Status status = SyncFile(beside);
  if (status.ok() && std::rename(beside.c_str(), path.c_str()) != 0) status = FileError(path, "cannot rename to it");
  if (status.ok()) return SyncFolder(Split(path).folder);
  ::unlink(beside.c_str());
  return status;
}

}  // namespace cairn
