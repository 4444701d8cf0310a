// SessionClient: a node's membership (Coordinator.Session), kept up for as long as the object lives.
//
// Thread rule: Send from any thread. Callbacks run one at a time on one thread of the client's own; they may call Send.
// Invariants:
//   1. Every connection starts with a fresh hello(); heartbeats follow at the interval that Welcome names.
//   2. A broken or refused session is opened again with back-off and jitter (50 ms to 1 s; of several coordinators to
//      0.5 s), until the destructor. ALREADY_EXISTS and INVALID_ARGUMENT go to on_rejected, when they change, and are
//      tried again too: a dead twin's lease lapses.
//   3. Messages given to Send while there is no session are dropped: hello() and later reports carry the state.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cairn/v1/cluster.pb.h"
#include "common/base/status.h"

namespace cairn {

struct SessionCallbacks {
  std::function<v1::Hello()> hello;
  std::function<v1::Heartbeat()> heartbeat;
  std::function<void(const v1::CoordinatorMessage&)> on_message;  // Welcome too
  std::function<void(bool up)> on_connection;                     // up: after Welcome
  std::function<void(const absl::Status&)> on_rejected;
  // Every coordinator was tried and none took part; it is tried on. Told once until there is a session again.
  std::function<void(const absl::Status&)> on_unreached;
};

class SessionClient {
 public:
  // coordinators: "host:port", or several with commas between them: tried in turn, and a standby's word is followed to
  // the leader.
  SessionClient(const std::string& coordinators, SessionCallbacks callbacks);
  ~SessionClient();
  // Queued bytes are bounded (8 MiB); beyond, the session is broken and opened anew.
  void Send(v1::NodeMessage message);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace cairn
