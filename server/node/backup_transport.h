// BackupTransport: a primary's way to the ps that hold its backups. BackupConnections in a ps; the simulator has its
// own.
//
// Thread rule: Send and Peers from any thread; Keep and Close from one control thread. Invariants:
//   1. A request's `done` runs once: with the backup's ACK or ERROR frame, or with the status that ended the stream.
//      It may run within Send.
//   2. Requests for one partition arrive in order; after one that the stream lost, none of the same stream arrives.
//   3. A request to an address that is not kept ends at once with CANCELLED.
//   4. Peers() has every address that is kept.
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
  // Connections to exactly these; those to others are closed.
  virtual void Keep(const std::set<std::string>& addresses) = 0;
  void Close() { Keep({}); }
  virtual void Send(const std::string& address, std::vector<Frame> request, Done done) = 0;
  virtual std::map<std::string, PeerState> Peers() const = 0;
};

}  // namespace cairn
