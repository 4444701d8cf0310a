// Files by path, below the process' roots where it has some (roots.h); and files that survive a crash and a loss of
// power: complete or absent, name and bytes.
//
// Any thread; blocks on the disk. A file whose bytes are synced but whose folder is not may have no name after a loss
// of power, and a name that is synced before the bytes may name an empty file: hence one function for both, in order.
#pragma once

#include <cerrno>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/status.h"

namespace cairn {

// `path: what: the system's reason`, with the code of that reason.
absl::Status FileError(absl::string_view path, absl::string_view what, int error = errno);

// Owns a file descriptor and closes it.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept;
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }  // the caller closes it

 private:
  int fd_;
};

// ---- what is there ----

struct PathInfo {
  enum Kind { kNone, kFile, kFolder, kOther } kind = kNone;
  uint64_t bytes = 0;
  absl::Time changed = absl::InfinitePast();
};
// Symbolic links are followed. kNone: nothing, or nothing that may be looked at.
PathInfo InfoOf(const std::string& path);
inline bool IsFolder(const std::string& path) { return InfoOf(path).kind == PathInfo::kFolder; }
inline bool IsFile(const std::string& path) { return InfoOf(path).kind == PathInfo::kFile; }
inline bool IsThere(const std::string& path) { return InfoOf(path).kind != PathInfo::kNone; }

struct FolderEntry {
  std::string name;
  PathInfo::Kind kind = PathInfo::kNone;  // of what a link leads to
};
// Sorted by name. Errors: those of the system, NOT_FOUND among them.
absl::StatusOr<std::vector<FolderEntry>> ListFolder(const std::string& folder);
// Nothing where it cannot be read.
std::vector<FolderEntry> EntriesOf(const std::string& folder);

// 0, or -1 with errno, as unlink(2), rmdir(2) and link(2).
int RemoveFile(const std::string& path);
int RemoveFolder(const std::string& path);
int LinkFile(const std::string& from, const std::string& to);

// ---- what lasts ----

// Syncs the names in a folder ("": the working directory). Some network file systems cannot: that is no error.
absl::Status SyncFolder(const std::string& folder);
absl::Status SyncFile(const std::string& path);

// Creates a folder and those above it that are missing; each new one's name is synced. OK if it exists.
absl::Status MakeFolders(const std::string& folder);

// `write` creates and fills the file `beside`, a path to a temporary name in the folder, with the same ending. It is
// then synced, renamed to `path`, and the folder synced. On an error nothing is left, and what was at `path` stays,
// unless the last sync failed. Names that `beside` begins with are `write`'s too.
absl::Status WriteFileWhole(const std::string& path,
                            const std::function<absl::Status(const std::string& beside)>& write);
// Creates a file that `write` fills; an existing one, or a link, is an error.
FileDescriptor CreateBeside(const std::string& beside);
// The last part of it, for a file that was written beside `path` over some time.
absl::Status PutInPlace(const std::string& beside, const std::string& path);

}  // namespace cairn
