// The name of a ps, which its data directory keeps (`data_dir`/name): the coordinator knows by the name alone whose
// partitions a directory holds. Under another name a ps would be told to drop them.
//
// Any thread; one process uses the directory at a time. Invariants:
//   1. Once a coordinator has taken a directory's name, it is started under no other.
//   2. A given name is kept once the coordinator has taken it (KeepNodeName at Welcome), so that a name that it refuses
//      does not stay. A generated one is kept before it is used, and may be given up for another until it is taken.
//   3. The file's first line is the name; a second one, "taken", says that a coordinator has taken it. Earlier releases
//      wrote generated names alone, and took a given one without writing it: what such a file says may be outdated.
#pragma once

#include <string>

#include "common/base/status.h"
#include "common/rpc/access.h"

namespace cairn {

struct NodeNameRequest {
  std::string data_dir;  // exists
  std::string given;     // --name; empty: the kept name, or at the first start a new one
  bool joined = false;   // the directory has joined a cluster
};

// The name to join with. caller: of this process' certificate.
// Errors: INVALID_ARGUMENT: the directory is that of another ps; it has joined a cluster but keeps no name (earlier
// releases kept generated names only) and none is given; the certificate is not for the kept name. PERMISSION_DENIED:
// the directory cannot be written to.
absl::StatusOr<std::string> ChooseNodeName(const NodeNameRequest& request, const Caller& caller);

// Of a name that the coordinator has taken. Survives power loss. OK if it is kept already. Errors: as the system's.
absl::Status KeepNodeName(const std::string& data_dir, const std::string& name);

}  // namespace cairn
