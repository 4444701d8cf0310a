#include "common/base/roots.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/files.h"

namespace cairn {
namespace {

constexpr char kReadOnly[] = ":ro";
// The kernel gives up (EAGAIN) where something is renamed while it follows "..".
constexpr int kTries = 16;

struct HeldRoot {
  Root root;
  std::string resolved;  // the folder without symbolic links: a path may be spelled either way
  FileDescriptor descriptor;
};

struct Roots {
  std::vector<HeldRoot> all;  // without the remote ones
  std::vector<Root> remote;
  std::string working_directory;
};

std::unique_ptr<Roots> roots;  // NOLINT: set once by a main, as the credentials are

bool IsName(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](unsigned char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_'; });
}

// What is left of the path below the folder; none: it is not there.
std::optional<std::string> Below(absl::string_view path, absl::string_view folder) {
  if (folder == "/") return absl::StartsWith(path, "/") ? std::optional(std::string(path)) : std::nullopt;
  if (!absl::ConsumePrefix(&path, folder)) return std::nullopt;
  if (!path.empty() && path[0] != '/') return std::nullopt;
  while (absl::ConsumePrefix(&path, "/")) continue;
  return std::string(path);
}

absl::Status ReadOnlyBelowWritten(const std::string& read, const std::string& written) {
  return absl::InvalidArgumentError(absl::StrCat("root: ", read, " is read only, but lies below ", written,
                                                 ", where jobs may write; leave one out, or ",
                                                 "give roots that lie beside each other"));
}

// The same without the slashes at its ends.
absl::string_view WithoutSlashes(absl::string_view text) {
  while (absl::ConsumePrefix(&text, "/")) continue;
  while (absl::ConsumeSuffix(&text, "/")) continue;
  return text;
}

struct Place {
  const HeldRoot* root = nullptr;
  std::string below;
};

std::optional<Place> PlaceOf(const std::string& path) {
  for (const HeldRoot& held : roots->all) {
    absl::string_view rest = path;
    if (held.root.name.empty() || !absl::ConsumePrefix(&rest, held.root.name + ":")) continue;
    while (absl::ConsumePrefix(&rest, "/")) continue;
    return Place{&held, held.root.folder == "/" ? absl::StrCat("/", rest) : std::string(rest)};
  }
  if (path.empty()) return std::nullopt;
  const std::string whole = path[0] == '/' ? path : absl::StrCat(roots->working_directory, "/", path);
  std::optional<Place> best;
  for (const HeldRoot& held : roots->all) {
    if (held.root.secret) continue;
    for (const std::string* folder : {&held.root.folder, &held.resolved}) {
      std::optional<std::string> below = Below(whole, *folder);
      if (!below || (best && best->root->root.folder.size() >= held.root.folder.size())) continue;
      best = Place{&held, *std::move(below)};
    }
  }
  return best;
}

FileDescriptor Refuse(int error) {
  errno = error;
  return FileDescriptor();
}

FileDescriptor OpenBelow(const FileDescriptor& folder, const std::string& below, int flags, unsigned mode) {
  open_how how{};
  how.flags = static_cast<uint64_t>(static_cast<unsigned>(flags | O_CLOEXEC));
  how.mode = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? mode : 0;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  const char* const path = below.empty() ? "." : below.c_str();
  for (int i = 0; i < kTries; ++i) {
    const long fd = ::syscall(SYS_openat2, folder.get(), path, &how, sizeof(how));
    if (fd >= 0 || errno != EAGAIN) return FileDescriptor(static_cast<int>(fd));
  }
  return Refuse(EXDEV);
}

std::string TextOf(const Root& root) { return absl::StrCat(root.name, root.name.empty() ? "" : "=", root.folder); }

}  // namespace

absl::StatusOr<Root> ParseRoot(const std::string& text) {
  Root root;
  absl::string_view rest = text;
  root.writable = !absl::ConsumeSuffix(&rest, kReadOnly);
  if (const size_t equals = rest.find('='); equals != rest.npos && equals < rest.find('/')) {
    root.name = std::string(rest.substr(0, equals));
    rest.remove_prefix(equals + 1);
    if (!IsName(root.name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("root: \"", text, "\": what stands before the = is a name, of letters, digits, - and _"));
    }
  }
  if (rest.empty())
    return absl::InvalidArgumentError(
        absl::StrCat("root: \"", text, "\": give [NAME=]FOLDER, and :ro if it is only read"));
  root.folder = std::string(rest);
  if (root.remote() && WithoutSlashes(root.folder.substr(5)).empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("root: \"", text, "\": names no bucket; give s3://BUCKET[/PREFIX], and :ro if it is only read"));
  }
  return root;
}

absl::Status UseRoots(std::vector<Root> given) {
  auto made = std::make_unique<Roots>();
  char here[PATH_MAX];
  if (::getcwd(here, sizeof(here)) == nullptr) return FileError(".", "the working directory cannot be found");
  made->working_directory = here;
  if (given.empty()) given.push_back({"", here, true});
  std::set<std::string> names;
  for (Root& root : given) {
    if (!root.name.empty() && !names.insert(root.name).second) {
      return absl::InvalidArgumentError(absl::StrCat("root: two are called \"", root.name, "\"; choose another name"));
    }
    if (root.remote()) {
      while (root.folder.back() == '/') root.folder.pop_back();
      made->remote.push_back(std::move(root));
      continue;
    }
    if (root.folder[0] != '/') root.folder = absl::StrCat(here, "/", root.folder);
    while (root.folder.size() > 1 && root.folder.back() == '/') root.folder.pop_back();
    FileDescriptor folder(::open(root.folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    char resolved[PATH_MAX];
    if (folder.get() < 0 || ::realpath(root.folder.c_str(), resolved) == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("root: ", root.folder, ": ", std::strerror(errno), "; create the folder, or name another"));
    }
    if (root.folder != "/" && OpenBelow(folder, ".", O_PATH, 0).get() < 0) {
      return absl::FailedPreconditionError(absl::StrCat("root: this system cannot keep jobs below ", root.folder,
                                                        " (openat2, Linux 5.6: ", std::strerror(errno),
                                                        "); --root / lets jobs reach every file of this user"));
    }
    made->all.push_back({std::move(root), resolved, std::move(folder)});
  }
  for (const HeldRoot& read : made->all) {
    for (const HeldRoot& written : made->all) {
      if (read.root.writable || !written.root.writable || !Below(read.resolved, written.resolved)) continue;
      if (!read.root.listed) {
        return absl::InvalidArgumentError(
            absl::StrCat("root: ", read.root.folder, ", the cache of what is read from S3, lies below ",
                         written.root.folder, ", where jobs may write; give it another place by --s3-cache DIR"));
      }
      return ReadOnlyBelowWritten(read.root.folder, written.root.folder);
    }
  }
  for (const Root& read : made->remote) {
    for (const Root& written : made->remote) {
      if (!read.writable && written.writable && Below(read.folder, written.folder))
        return ReadOnlyBelowWritten(read.folder, written.folder);
    }
  }
  roots = std::move(made);
  return absl::OkStatus();
}

void ForgetRoots() { roots.reset(); }

bool HasRoots() {
  if (roots == nullptr) return false;
  if (roots->all.empty()) return true;
  const Root& first = roots->all[0].root;
  return roots->all.size() > 1 || first.folder != "/" || !first.writable || !first.name.empty();
}

std::string RootsText() {
  if (roots == nullptr) return "every file";
  std::vector<std::string> texts;
  const auto add = [&](const Root& root) {
    if (!root.listed) return;
    texts.push_back(absl::StrCat(TextOf(root), root.writable ? "" : " (read)"));
  };
  for (const HeldRoot& held : roots->all) add(held.root);
  for (const Root& root : roots->remote) add(root);
  return absl::StrJoin(texts, ", ");
}

std::optional<RemotePlace> RemotePlaceOf(absl::string_view path) {
  if (roots == nullptr) return std::nullopt;
  std::optional<RemotePlace> best;
  for (const Root& root : roots->remote) {
    absl::string_view rest = path;
    if (!root.name.empty() && absl::ConsumePrefix(&rest, root.name + ":"))
      return RemotePlace{root, std::string(WithoutSlashes(rest))};
    const std::optional<std::string> below = Below(path, root.folder);
    if (!below || (best && best->root.folder.size() >= root.folder.size())) continue;
    best = RemotePlace{root, std::string(WithoutSlashes(*below))};
  }
  return best;
}

bool NamesRoot(absl::string_view path) {
  if (RemotePlaceOf(path)) return true;
  return roots != nullptr && std::any_of(roots->all.begin(), roots->all.end(), [&](const HeldRoot& held) {
           return !held.root.name.empty() && absl::StartsWith(path, held.root.name + ":");
         });
}

bool MayNameRoot(absl::string_view path) {
  const size_t colon = path.find(':');
  return colon != path.npos && IsName(path.substr(0, colon)) && absl::StartsWith(path.substr(colon), ":/");
}

FileDescriptor OpenPath(const std::string& path, int flags, Access access, unsigned mode) {
  if (roots == nullptr) return FileDescriptor(::open(path.c_str(), flags | O_CLOEXEC, mode));
  if (RemotePlaceOf(path)) return Refuse(EREMOTE);
  const std::optional<Place> place = PlaceOf(path);
  if (!place) return Refuse(EXDEV);
  const bool writes = access == Access::kWrite || (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) != 0;
  if (writes && !place->root->root.writable) return Refuse(EROFS);
  if (place->root->root.folder == "/") return FileDescriptor(::open(place->below.c_str(), flags | O_CLOEXEC, mode));
  return OpenBelow(place->root->descriptor, place->below, flags, mode);
}

absl::Status CheckInRoots(absl::string_view field, const std::string& path, Access access) {
  if (roots == nullptr || path.empty()) return absl::OkStatus();
  if (const std::optional<RemotePlace> remote = RemotePlaceOf(path)) {
    return absl::PermissionDeniedError(
        absl::StrCat(field, ": \"", path, "\" lies in the S3 root ", TextOf(remote->root),
                     ", which holds data sets, checkpoints and model files, but not this; give a path below another ",
                     "root of this worker; its roots: ", RootsText()));
  }
  // The nearest part that exists: what is missing is created below it.
  for (std::string at = path;;) {
    const FileDescriptor found = OpenPath(at, O_PATH, access);
    if (found.get() >= 0) return absl::OkStatus();
    const int error = errno;
    const size_t slash = at.rfind('/');
    const bool up = at.substr(slash == std::string::npos ? 0 : slash + 1) == "..";  // of a folder that is not there
    if (error == ENOENT && slash != std::string::npos && slash > 0 && !up) {
      at.resize(slash);
      continue;
    }
    if (error == ENOENT && !up) return absl::OkStatus();  // the first part of a relative path
    if (!up && error != EXDEV && error != EROFS && error != ELOOP)
      return absl::OkStatus();  // who opens it says it better
    return absl::PermissionDeniedError(
        absl::StrCat(field, ": \"", path, "\" ",
                     error == EROFS ? "lies below a root that this worker only reads"
                                    : "does not lie below a root of this worker, or a link leads out of it",
                     "; its roots: ", RootsText(), ". Give a path there, or start the worker with --root FOLDER"));
  }
}

absl::Status CheckHasRoot(absl::string_view field, absl::string_view path) {
  if (!absl::StartsWith(path, "s3://") || RemotePlaceOf(path)) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(field, ": \"", path,
                                          "\" lies below no S3 root of this worker; give a path below one, or start "
                                          "workers with --root NAME=s3://BUCKET/PREFIX[:ro]"));
}

absl::Status CheckInAnyRoot(absl::string_view field, const std::string& path, Access access) {
  const std::optional<RemotePlace> remote = RemotePlaceOf(path);
  if (!remote) {
    CAIRN_RETURN_IF_ERROR(CheckHasRoot(field, path));
    return CheckInRoots(field, path, access);
  }
  if (access == Access::kRead || remote->root.writable) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat(field, ": \"", path, "\" lies in the S3 root ", TextOf(remote->root),
                   ", which this worker only reads; its roots: ", RootsText(),
                   ". Give a path below one that it may write to, or start the worker with that root without :ro"));
}

}  // namespace cairn
