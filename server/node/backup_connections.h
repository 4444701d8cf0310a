// BackupConnections: connects primaries to the ps of their backups: one connection to each, shared by all partitions.
//
// Thread rule and invariants: those of BackupTransport; Keep and Close wait for callbacks. `done` runs on another
// thread, unless the address is not kept. Times of Peers() are read from `clock`.
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
#include "common/base/trace.h"
#include "common/tensor/frame.h"
#include "server/core/backup_link.h"
#include "server/node/backup_transport.h"

namespace cairn {

class BackupConnections : public BackupTransport {
 public:
  // trace: may be null.
  BackupConnections(Clock& clock, TraceRecorder* trace, bool shared_memory)
      : clock_(clock), trace_(trace), shared_memory_(shared_memory) {}

  void Keep(const std::set<std::string>& addresses) override;
  void Send(const std::string& address, std::vector<Frame> request, Done done) override;
  std::map<std::string, PeerState> Peers() const override;

 private:
  Clock& clock_;
  TraceRecorder* const trace_;
  const bool shared_memory_;
  mutable absl::Mutex mutex_;
  std::map<std::string, std::shared_ptr<PsConnection>> connections_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, absl::Time> heard_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
