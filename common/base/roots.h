// Roots: the folders below which this process reads and writes what a job names. docs/security.md
//
// UseRoots once, by a main, before anything of a job is opened; the rest from any thread. Without a call every path is
// opened as it is: programs that people run for themselves. Invariants:
//   1. A path of a job is opened by OpenPath and the functions of files.h alone (tests/lint/job_paths.py).
//   2. With roots a file is reached from the folder of one, and the kernel refuses every step out of it (openat2 with
//      RESOLVE_BENEATH): "..", symbolic links, also ones that are swapped meanwhile, and links of /proc.
//   3. A root that is only read is never opened for writing.
//   4. Nothing of a remote root is opened here: what a job reads and writes there goes through remote_files.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/status.h"

namespace cairn {

class FileDescriptor;

enum class Access { kRead, kWrite };

struct Root {
  std::string name;    // of "NAME=FOLDER": letters, digits, - and _; empty: none
  std::string folder;  // absolute; "/": every file; or s3://BUCKET[/PREFIX]
  bool writable = true;
  bool listed = true;   // false: of this process itself, left out of RootsText
  bool secret = false;  // reached by its name alone, which no job can know: of this process itself
  bool remote() const { return folder.compare(0, 5, "s3://") == 0; }
};

// [NAME=]FOLDER[:ro], or [NAME=]s3://BUCKET[/PREFIX][:ro]. Errors: INVALID_ARGUMENT.
absl::StatusOr<Root> ParseRoot(const std::string& text);

// Empty: the working directory, for reading and writing. Errors: INVALID_ARGUMENT: two of one name; a folder that is
// not there; FAILED_PRECONDITION: this system has no openat2.
absl::Status UseRoots(std::vector<Root> roots);
// For tests: as if UseRoots was never called.
void ForgetRoots();

// Whether a path may lead out: there are roots, and none of them is "/".
bool HasRoots();
// "data=/data (read), /runs": for errors and the log.
std::string RootsText();
struct RemotePlace {
  Root root;
  std::string below;  // what follows the root, without slashes at its ends; empty: the root itself
};
// The remote root in which a path lies, by its name, "data:/fashion-mnist", or its address, "s3://bucket/prefix/...".
std::optional<RemotePlace> RemotePlaceOf(absl::string_view path);
// Whether it begins with the name of one: "data:/fashion-mnist".
bool NamesRoot(absl::string_view path);
// Whether it is of that form: only who opens it knows the roots.
bool MayNameRoot(absl::string_view path);

// open(2), with O_CLOEXEC. A descriptor below 0: errno says why; EXDEV: it leads out of the roots; EREMOTE: it lies
// in a remote one. access: kWrite also for a folder in which something is to be changed.
FileDescriptor OpenPath(const std::string& path, int flags, Access access = Access::kRead, unsigned mode = 0644);

// OK: the path is below a root of this machine that allows it, as far as it exists. Errors: PERMISSION_DENIED with the
// field, the path and the roots.
absl::Status CheckInRoots(absl::string_view field, const std::string& path, Access access);
// The same for what may lie in a remote root too. Errors: NOT_FOUND: an address of S3 below no root.
absl::Status CheckInAnyRoot(absl::string_view field, const std::string& path, Access access);
// That an address, "s3://...", lies below a remote root; OK for other paths. Errors: NOT_FOUND: another worker may have
// that root.
absl::Status CheckHasRoot(absl::string_view field, absl::string_view path);

}  // namespace cairn
