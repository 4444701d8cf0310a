#include "common/formats/plain_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cairn {

absl::Status FileError(absl::string_view path, absl::string_view what, int error) {
  return absl::Status(absl::ErrnoToStatus(error, "").code(),
                      absl::StrCat(path, ": ", what, ": ", std::strerror(error)));
}

FileDescriptor::FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}

namespace {

// Opens `name` in `directory`; errors name `path`.
absl::StatusOr<FileDescriptor> OpenPlainFileAt(int directory, const char* name, const std::string& path, int flags) {
  // O_NONBLOCK: a pipe is rejected instead of waited for. It has no effect on a regular file.
  FileDescriptor file(::openat(directory, name, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0644));
  struct stat info {};
  const bool opened = file.get() >= 0;
  const int error = errno;
  const int follow = flags & O_NOFOLLOW ? AT_SYMLINK_NOFOLLOW : 0;
  const int looked = opened ? ::fstat(file.get(), &info) : ::fstatat(directory, name, &info, follow);
  if (looked == 0 && !S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, S_ISDIR(info.st_mode) ? ": is a folder, not a file" : ": is not a regular file"));
  }
  if (!opened) return FileError(path, "cannot open", error);
  if (looked != 0) return FileError(path, "cannot be looked at");
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
  return OpenPlainFileAt(AT_FDCWD, path.c_str(), path, flags);
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
  CAIRN_ASSIGN_OR_RETURN(const FileDescriptor file, OpenPlainFileAt(directory, name, where, O_RDONLY | O_NOFOLLOW));
  return ReadAll(file, where, bytes_max);
}

}  // namespace cairn
