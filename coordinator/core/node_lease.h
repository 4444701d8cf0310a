// NodeLease: whether a node counts as alive: its session, when it was last heard, and when it is given up.
//
// Not thread-safe; part of a ClusterNode, and changed by Membership alone. Invariants:
//   1. A node with a session is alive. One that is alive without a session has a time at which it is given up.
//   2. A node that was alive by the stored state is expected from the start of the coordinator until it opens a session
//      or is given up.
#pragma once

#include <utility>

#include "absl/time/time.h"
#include "coordinator/core/events.h"

namespace cairn {

class NodeLease {
 public:
  NodeLease() = default;
  // Of the stored state: a node that is dead.
  NodeLease(absl::Time joined, absl::Time last_heard) : joined_(joined), last_heard_(last_heard) {}

  bool alive() const { return alive_; }
  bool connected() const { return session_.value != 0; }
  bool expected() const { return expected_; }
  SessionToken session() const { return session_; }  // 0: none is open
  absl::Time joined() const { return joined_; }
  absl::Time last_heard() const { return last_heard_; }

  // The node was alive before this coordinator started, and may come back until then.
  void Expect(absl::Time now, absl::Time until) {
    alive_ = expected_ = true;
    last_heard_ = now;  // as far as is known it is alive
    give_up_at_ = until;
  }
  void Open(SessionToken session, absl::Time now) {
    if (!alive_) joined_ = now;
    alive_ = true;
    expected_ = false;
    last_heard_ = now;
    session_ = session;
    give_up_at_ = absl::InfiniteFuture();
  }
  void Hear(absl::Time now) { last_heard_ = now; }
  // The session broke; the node may open another one until then.
  void Break(absl::Time until) {
    session_ = {};
    give_up_at_ = until;
  }
  // silence_max: how long a node with a session may say nothing.
  bool Lapsed(absl::Time now, absl::Duration silence_max) const {
    if (!alive_) return false;
    return connected() ? now - last_heard_ >= silence_max : now >= give_up_at_;
  }
  // The node is given up. Returns its session, which is still open; 0: none was.
  SessionToken End() {
    alive_ = expected_ = false;
    return std::exchange(session_, {});
  }

 private:
  bool alive_ = false;
  bool expected_ = false;
  SessionToken session_;
  absl::Time joined_;
  absl::Time last_heard_;
  absl::Time give_up_at_ = absl::InfiniteFuture();
};

}  // namespace cairn
