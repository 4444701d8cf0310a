// Plain files: opened, read and written so that no caller waits for what is no file. open() of a pipe that nobody reads
// or writes, or of a device, can wait for ever; here it is an error that says so.
//
// Any thread; blocking as far as a disk is.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "common/base/status.h"
#include "common/tensor/buffer.h"

namespace cairn {

// `path: what: the system's reason`, with the code of that reason.
absl::Status FileError(absl::string_view path, absl::string_view what, int error = errno);

// Closes what it holds.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept;
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();
  int get() const { return fd_; }

 private:
  int fd_;
};

// open(2) with these flags (and O_CLOEXEC; O_CREAT makes it with mode 0644) of a regular file. Errors: INVALID_ARGUMENT
// it is something else; the system's.
absl::StatusOr<FileDescriptor> OpenPlainFile(const std::string& path, int flags);

// All of `bytes`; `path` is what an error names.
absl::Status WriteAll(int fd, absl::string_view bytes, absl::string_view path);

// A whole regular file. Errors: those of OpenPlainFile; INVALID_ARGUMENT it has more than bytes_max.
absl::StatusOr<Buffer> ReadFileBytes(const std::string& path, size_t bytes_max = SIZE_MAX);

// The same of `name` in an open directory, which is called `path` in errors; no symbolic link is followed.
absl::StatusOr<Buffer> ReadFileBytesAt(int directory, const char* name, absl::string_view path, size_t bytes_max);

}  // namespace cairn
