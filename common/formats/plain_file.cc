#include "common/formats/plain_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/roots.h"

namespace cairn {

namespace {

// O_NONBLOCK: a pipe is rejected instead of waited for. It has no effect on a regular file.
constexpr int kFlags = O_NONBLOCK | O_NOCTTY | O_CLOEXEC;

absl::Status NoPlainFile(const std::string& path, bool folder) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, folder ? ": is a folder, not a file" : ": is not a regular file"));
}

// error: of the open that gave `file`; `what` is at the path where it failed.
absl::StatusOr<FileDescriptor> CheckPlain(FileDescriptor file, const std::string& path, int error,
                                          PathInfo::Kind what) {
  if (file.get() < 0) {
    const bool other = what == PathInfo::kFolder || what == PathInfo::kOther;
    return other ? NoPlainFile(path, what == PathInfo::kFolder) : FileError(path, "cannot open", error);
  }
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return FileError(path, "cannot be looked at");
  if (!S_ISREG(info.st_mode)) return NoPlainFile(path, S_ISDIR(info.st_mode));
  return file;
}

absl::StatusOr<Buffer> ReadAll(const FileDescriptor& file, const std::string& path, size_t bytes_max) {
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return FileError(path, "cannot be looked at");
  const auto size = static_cast<size_t>(info.st_size);
  if (size > bytes_max) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", size, " bytes; at most ", bytes_max, " are read"));
  }
  Buffer bytes = Buffer::Allocate(size);
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t n = ::read(file.get(), bytes.mutable_data() + at, bytes.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError(path, "cannot read");
    if (n == 0) return absl::DataLossError(absl::StrCat(path, ": became shorter while it was read"));
    at += static_cast<size_t>(n);
  }
  return bytes;
}

}  // namespace

absl::StatusOr<FileDescriptor> OpenPlainFile(const std::string& path, int flags) {
  FileDescriptor opened = OpenPath(path, (flags & ~O_TRUNC) | kFlags);
  const int error = errno;
  const PathInfo::Kind what = opened.get() < 0 ? InfoOf(path).kind : PathInfo::kNone;
  CAIRN_ASSIGN_OR_RETURN(FileDescriptor file, CheckPlain(std::move(opened), path, error, what));
  if ((flags & (O_WRONLY | O_RDWR)) == 0) return file;
  struct stat info {};
  if (HasRoots() && ::fstat(file.get(), &info) == 0 && info.st_nlink > 1) {
    return absl::PermissionDeniedError(
        absl::StrCat(path,
                     ": the file has another name as well (a hard link), which may lie outside of the roots; "
                     "remove it, or give another path"));
  }
  if ((flags & O_TRUNC) != 0 && ::ftruncate(file.get(), 0) != 0) return FileError(path, "cannot cut");
  return file;
}

absl::Status WriteAll(int fd, absl::string_view bytes, absl::string_view path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError(path, "cannot write");
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::StatusOr<Buffer> ReadFileBytes(const std::string& path, size_t bytes_max) {
  CAIRN_ASSIGN_OR_RETURN(const FileDescriptor file, OpenPlainFile(path, O_RDONLY));
  return ReadAll(file, path, bytes_max);
}

absl::StatusOr<Buffer> ReadFileBytesAt(int directory, const char* name, absl::string_view path, size_t bytes_max) {
  const std::string where = absl::StrCat(path, "/", name);
  FileDescriptor opened(::openat(directory, name, O_RDONLY | O_NOFOLLOW | kFlags));
  const int error = errno;
  struct stat info {};
  const bool looked = opened.get() < 0 && ::fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) == 0;
  const PathInfo::Kind what = !looked || S_ISREG(info.st_mode) ? PathInfo::kNone
                              : S_ISDIR(info.st_mode)          ? PathInfo::kFolder
                                                               : PathInfo::kOther;
  CAIRN_ASSIGN_OR_RETURN(const FileDescriptor file, CheckPlain(std::move(opened), where, error, what));
  return ReadAll(file, where, bytes_max);
}

}  // namespace cairn
