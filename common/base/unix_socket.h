// Unix sockets by path: to connect to one, and to listen on one.
//
// Thread rule: any thread. ConnectUnixSocket blocks no longer than it takes the kernel to answer.
#pragma once

#include <string>

#include "common/base/files.h"
#include "common/base/status.h"

namespace cairn {

// own_only: it must belong to this user or to root, file and listener both, so that no other user can have put it
// there. Its folder may be writable by others if that is sticky, such as /tmp. The socket does not block.
// Errors: INVALID_ARGUMENT: the path is too long; UNAVAILABLE: nobody listens there; PERMISSION_DENIED.
absl::StatusOr<FileDescriptor> ConnectUnixSocket(const std::string& path, bool own_only);

// A socket on which nobody listens any more is replaced. own_only: no other user may connect. The socket does not
// block. Errors: INVALID_ARGUMENT: the path is too long; UNAVAILABLE.
absl::StatusOr<FileDescriptor> ListenOnUnixSocket(const std::string& path, bool own_only);

}  // namespace cairn
