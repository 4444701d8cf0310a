#include "worker/checkpoint/path_probe.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>

#include "absl/strings/str_format.h"
#include "common/base/files.h"
#include "common/base/roots.h"

namespace cairn {
namespace {

// Returns 0 or the errno of the failure.
int WriteByte(const FileDescriptor& file) { return write(file.get(), "", 1) == 1 ? 0 : errno; }

int ProbeDirectory(const std::string& directory) {
  // An unnamed file if the file system supports it: nothing is left even if the process is killed here.
  FileDescriptor nameless = OpenPath(directory, O_TMPFILE | O_WRONLY, Access::kWrite, 0600);
  if (nameless.get() >= 0) return WriteByte(nameless);
  const std::string path =
      absl::StrFormat("%s/.cairn-probe-%08x%08x", directory, std::random_device{}(), std::random_device{}());
  const FileDescriptor named = OpenPath(path, O_WRONLY | O_CREAT | O_EXCL, Access::kWrite, 0600);
  if (named.get() < 0) return errno;
  const int error = WriteByte(named);
  RemoveFile(path);
  return error;
}

int ProbeFile(const std::string& file) {
  return OpenPath(file, O_WRONLY | O_APPEND | O_NONBLOCK).get() < 0 ? errno : 0;
}

// The path itself, or its nearest existing ancestor.
std::filesystem::path Nearest(std::filesystem::path path) {
  while (!IsThere(path.string()) && path.has_relative_path() && path != path.parent_path()) path = path.parent_path();
  return path.empty() ? std::filesystem::path(".") : path;
}

absl::Status TryRemotely(const WrittenPath& written, RemoteFiles& remote, absl::Time until) {
  if (!written.whole) return CheckInRoots(written.field, written.path, Access::kWrite);  // which refuses it
  CAIRN_RETURN_IF_ERROR(CheckInAnyRoot(written.field, written.path, Access::kWrite));
  const size_t slash = written.path.rfind('/');
  const bool named = !written.directory && slash != std::string::npos;
  const absl::Status status = remote.TryToWrite(named ? written.path.substr(0, slash) : written.path, until);
  return Annotate(status, absl::StrFormat("%s: \"%s\" cannot be written", written.field, written.path));
}

}  // namespace

absl::Status TryToWrite(const WrittenPath& written, RemoteFiles* remote, absl::Time until) {
  if (remote != nullptr && remote->Has(written.path)) return TryRemotely(written, *remote, until);
  CAIRN_RETURN_IF_ERROR(CheckHasRoot(written.field, written.path));
  CAIRN_RETURN_IF_ERROR(CheckInRoots(written.field, written.path, Access::kWrite));
  const std::filesystem::path path(written.path);
  std::filesystem::path tried = written.directory ? Nearest(path) : path;
  const PathInfo::Kind kind = InfoOf(written.path).kind;
  // A name that is too long, say: not that it is missing.
  int error = OpenPath(written.path, O_PATH, Access::kWrite).get() < 0 && errno != ENOENT ? errno : 0;
  if (error == 0 && !written.directory && kind != PathInfo::kNone) error = ProbeFile(path.string());
  if (!written.directory && error == 0)
    tried = Nearest(path.has_parent_path() ? path.parent_path() : std::filesystem::path("."));
  if (error == 0) error = IsFolder(tried.string()) ? ProbeDirectory(tried.string()) : ENOTDIR;
  const bool special = error == 0 && !written.directory && kind != PathInfo::kNone && kind != PathInfo::kFile;
  if (error == 0 && !special) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrFormat(
      "%s: \"%s\" cannot be written: %s: %s; give a %s that the workers can write", written.field, written.path,
      special ? written.path : tried.string(), special ? "is not a regular file" : std::strerror(error),
      written.directory ? "directory" : "file"));
}

}  // namespace cairn
