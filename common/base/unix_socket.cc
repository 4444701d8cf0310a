#include "common/base/unix_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/limits.h"

namespace cairn {
namespace {

absl::StatusOr<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address{};
  if (path.empty() || path.size() > kUnixSocketPathBytesMax) {
    return absl::InvalidArgumentError(absl::StrFormat("unix socket \"%s\": a path has 1 to %d bytes, this one %d", path,
                                                      kUnixSocketPathBytesMax, path.size()));
  }
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

absl::StatusOr<FileDescriptor> NewSocket() {
  FileDescriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0) return absl::ErrnoToStatus(errno, "socket");
  return fd;
}

bool IsOfThisUser(int fd, const std::string& path) {
  ucred listener{};
  socklen_t size = sizeof(listener);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &listener, &size) != 0) return false;
  struct stat found {};
  if (lstat(path.c_str(), &found) != 0 || !S_ISSOCK(found.st_mode)) return false;
  const auto trusted = [](uid_t user) { return user == geteuid() || user == 0; };
  return trusted(listener.uid) && trusted(found.st_uid);
}

}  // namespace

absl::StatusOr<FileDescriptor> ConnectUnixSocket(const std::string& path, bool own_only) {
  CAIRN_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  CAIRN_ASSIGN_OR_RETURN(FileDescriptor fd, NewSocket());
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return absl::UnavailableError(absl::StrCat(path, ": cannot connect: ", std::strerror(errno)));
  }
  if (own_only && !IsOfThisUser(fd.get(), path)) {
    return absl::PermissionDeniedError(absl::StrCat(path, ": belongs to another user"));
  }
  return fd;
}

absl::StatusOr<FileDescriptor> ListenOnUnixSocket(const std::string& path, bool own_only) {
  CAIRN_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  CAIRN_ASSIGN_OR_RETURN(FileDescriptor fd, NewSocket());
  struct stat found {};
  if (lstat(path.c_str(), &found) == 0 && S_ISSOCK(found.st_mode)) {
    CAIRN_ASSIGN_OR_RETURN(const FileDescriptor probe, NewSocket());
    const bool refused = connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 &&
                         errno == ECONNREFUSED;
    if (!refused) return absl::UnavailableError(absl::StrCat(path, ": another process listens there"));
    unlink(path.c_str());
  }
  if (own_only) fchmod(fd.get(), 0600);  // the file has this mode from the moment it is created
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return absl::UnavailableError(absl::StrCat(path, ": cannot listen: ", std::strerror(errno)));
  }
  if (listen(fd.get(), kUnixConnectionsWaitingMax) != 0) {
    return absl::UnavailableError(absl::StrCat(path, ": cannot listen: ", std::strerror(errno)));
  }
  return fd;
}

}  // namespace cairn
