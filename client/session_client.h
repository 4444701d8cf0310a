// SessionClient: maintains a node's membership (Coordinator.Session) for as long as the object exists.
//
// Thread rule: Send from any thread. Callbacks run one at a time on the client's own thread; they may call Send.
// Invariants:
//   1. Every connection starts with a fresh hello(); heartbeats follow at the interval that Welcome sets.
//   2. A broken or refused session is reopened with back-off and jitter (50 ms to 1 s; with several coordinators to
//      0.5 s), until the destructor. ALREADY_EXISTS and INVALID_ARGUMENT are passed to on_rejected when they change,
//      and are retried too: the lease of a dead node with the same name expires.
//   3. Messages sent while there is no session are dropped: hello() and later reports carry the state.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cairn/v1/cluster.pb.h"
#include "common/base/status.h"
#include "common/base/trace.h"

namespace cairn {

struct SessionCallbacks {
  std::function<v1::Hello()> hello;
  std::function<v1::Heartbeat()> heartbeat;
  // Including Welcome; not FetchLog and FetchTrace, answered here.
  std::function<void(const v1::CoordinatorMessage&)> on_message;
  std::function<void(bool up)> on_connection;  // up: after Welcome
  std::function<void(const absl::Status&)> on_rejected;
  // Every coordinator was tried and none serves; retries continue. Called once until there is a session again.
  std::function<void(const absl::Status&)> on_unreached;
  TraceRecorder* trace = nullptr;  // null: this node cannot be traced. It outlives the client; a lost session clears it
};

class SessionClient {
 public:
  // coordinators: "host:port", or several separated by commas: tried in turn; a leader that a standby names is tried
  // first.
  SessionClient(const std::string& coordinators, SessionCallbacks callbacks);
  ~SessionClient();
  // Queued bytes are bounded (8 MiB); beyond that, the session is closed and reopened.
  void Send(v1::NodeMessage message);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace cairn
