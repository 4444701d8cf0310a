// PsConnections: one connection to each ps, shared by all jobs of a worker.
//
// Thread-safe, except that Retain and Clear are called by one thread, and never by a callback of a connection (closing
// waits for the callbacks).
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/parameter_client.h"
#include "common/base/trace.h"

namespace cairn {

class PsConnections {
 public:
  // trace: PsConnectionOptions.trace of all of them.
  // shared_memory, arena: as PsConnectionOptions.
  explicit PsConnections(TraceRecorder* trace = nullptr, bool shared_memory = true, const SharedArena* arena = nullptr)
      : trace_(trace), shared_memory_(shared_memory), arena_(arena) {}
  // done: as PsConnection calls it.
  void Send(const std::string& address, Frame frame, PsConnection::Done done);
  void Snapshot(const std::string& address, Frame frame, PsConnection::OnTensor on_tensor, PsConnection::Done done);
  // Closes the connections to all other addresses.
  void Retain(const std::set<std::string>& addresses);
  // Closes all connections for good; from now on Send drops its frames. All senders must have been stopped.
  void Clear();

 private:
  std::shared_ptr<PsConnection> Find(const std::string& address);

  TraceRecorder* const trace_;
  const bool shared_memory_;
  const SharedArena* const arena_;
  absl::Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, std::shared_ptr<PsConnection>> connections_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
