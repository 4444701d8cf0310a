#include "worker/checkpoint/path_probe.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cairn {
namespace {

// Returns 0 or the errno of the failure.
int WriteByte(int fd) {
  const ssize_t written = write(fd, "", 1);
  const int error = written == 1 ? 0 : errno;
  close(fd);
  return error;
}

int ProbeDirectory(const std::string& directory) {
  // An unnamed file if the file system supports it: nothing is left even if the process is killed here.
  const int nameless = open(directory.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  if (nameless >= 0) return WriteByte(nameless);
  std::string path = absl::StrCat(directory, "/.cairn-probe-XXXXXX");
  const int named = mkostemp(path.data(), O_CLOEXEC);
  if (named < 0) return errno;
  const int error = WriteByte(named);
  unlink(path.c_str());
  return error;
}

int ProbeFile(const std::string& file) {
  const int fd = open(file.c_str(), O_WRONLY | O_APPEND | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return errno;
  close(fd);
  return 0;
}

// The path itself, or its nearest existing ancestor.
std::filesystem::path Nearest(std::filesystem::path path) {
  std::error_code error;
  while (!std::filesystem::exists(path, error) && path.has_relative_path()) path = path.parent_path();
  return path.empty() ? std::filesystem::path(".") : path;
}

}  // namespace

absl::Status TryToWrite(const WrittenPath& written) {
  std::error_code ignored;
  const std::filesystem::path path(written.path);
  std::filesystem::path tried = written.directory ? Nearest(path) : path;
  int error = 0;
  if (!written.directory && std::filesystem::exists(path, ignored)) error = ProbeFile(path.string());
  if (!written.directory && error == 0)
    tried = Nearest(path.has_parent_path() ? path.parent_path() : std::filesystem::path("."));
  if (error == 0) error = std::filesystem::is_directory(tried, ignored) ? ProbeDirectory(tried.string()) : ENOTDIR;
  const bool special = error == 0 && !written.directory && std::filesystem::exists(path, ignored) &&
                       !std::filesystem::is_regular_file(path, ignored);
  if (error == 0 && !special) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrFormat(
      "%s: \"%s\" cannot be written: %s: %s; give a %s that the workers can write", written.field, written.path,
      special ? written.path : tried.string(), special ? "is not a regular file" : std::strerror(error),
      written.directory ? "directory" : "file"));
}

}  // namespace cairn
