// BackupTransport: connects primaries to the ps of their backups. A ps uses BackupConnections; the simulator has its
// own.
//
// Thread rule: Send and Peers from any thread; Keep and Close from one control thread. Invariants:
//   1. A request's `done` runs once: with the backup's ACK or ERROR frame, or with the status that ended the stream.
//      It may run within Send.
//   2. Requests for one partition arrive in order; after a lost request, no later one of the same stream arrives.
//   3. A request to an address that is not kept ends at once with CANCELLED.
//   4. Peers() lists every kept address.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tensor/frame.h"
#include "server/core/backup_link.h"

namespace cairn {

class BackupTransport {
 public:
  using Done = std::function<void(absl::StatusOr<Frame>)>;

  virtual ~BackupTransport() = default;
  // Keeps connections to exactly these addresses; closes all others.
  virtual void Keep(const std::set<std::string>& addresses) = 0;
  void Close() { Keep({}); }
  virtual void Send(const std::string& address, std::vector<Frame> request, Done done) = 0;
  virtual std::map<std::string, PeerState> Peers() const = 0;
};

}  // namespace cairn
