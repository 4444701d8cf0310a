// BackupConnections: a primary's way to the ps that hold its backups: one connection to each, shared by all partitions.
//
// Thread rule: Send from any thread; Keep and Close from one control thread (they wait for callbacks). Invariants:
//   1. A request's `done` runs once, on another thread: with the backup's ACK or ERROR frame, or with the status that
//      ended the stream.
//   2. Requests for one partition arrive in order; after one that the stream lost, none of the same stream arrives.
//   3. A request to an address that is not kept ends at once with CANCELLED.
//   4. Peers() has every address that is kept; times are by `clock`.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/parameter_client.h"
#include "common/base/clock.h"
#include "common/tensor/frame.h"
#include "server/core/backup_link.h"

namespace cairn {

class BackupConnections {
 public:
  explicit BackupConnections(Clock& clock) : clock_(clock) {}

  // Connections to exactly these; those to others are closed.
  void Keep(const std::set<std::string>& addresses);
  void Send(const std::string& address, std::vector<Frame> request, PsConnection::Done done);
  void Close() { Keep({}); }
  std::map<std::string, PeerState> Peers() const;

 private:
  Clock& clock_;
  mutable absl::Mutex mutex_;
  std::map<std::string, std::shared_ptr<PsConnection>> connections_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, absl::Time> heard_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
