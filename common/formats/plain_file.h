// Opens, reads and writes regular files, so that no caller blocks on something else: open() of a pipe that nobody reads
// or writes, or of a device, can block for ever; here it is an error.
//
// Any thread; blocks only on the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "common/base/files.h"
#include "common/base/status.h"
#include "common/tensor/buffer.h"

namespace cairn {

// open(2) of a regular file with these flags (and O_CLOEXEC; O_CREAT uses mode 0644). Errors: INVALID_ARGUMENT: not a
// regular file; those of the system.
absl::StatusOr<FileDescriptor> OpenPlainFile(const std::string& path, int flags);

// Writes all of `bytes`; errors name `path`.
absl::Status WriteAll(int fd, absl::string_view bytes, absl::string_view path);

// Reads a whole regular file. Errors: those of OpenPlainFile; INVALID_ARGUMENT: it has more than bytes_max.
absl::StatusOr<Buffer> ReadFileBytes(const std::string& path, size_t bytes_max = SIZE_MAX);

// The same for `name` in an open directory; errors call it `path`. Symbolic links are not followed.
absl::StatusOr<Buffer> ReadFileBytesAt(int directory, const char* name, absl::string_view path, size_t bytes_max);

}  // namespace cairn
