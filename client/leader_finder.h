// LeaderFinder: which of several coordinators to ask: the one that answered last, the leader that a standby named, else
// the next of the list.
//
// Not thread-safe. Invariants: 1. A named leader is followed at once, but not again right after it did not serve: a
// standby goes on naming a leader that died until its lease is over. 2. Between two visits of one named leader the list
// is gone through.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/rpc/channel.h"

namespace cairn {

class LeaderFinder {
 public:
  explicit LeaderFinder(std::vector<std::string> addresses) : addresses_(std::move(addresses)) {
    if (!addresses_.empty()) current_ = addresses_[0];
  }

  const std::string& current() const { return current_; }
  bool several() const { return addresses_.size() > 1; }

  // The present one did not serve. named: the leader that it named, as a peer sent it; may be empty or nonsense.
  // True: ask current() at once; false: after a wait.
  bool Failed(const std::string& named) {
    const bool was_named = std::exchange(following_, false);
    if (was_named) not_serving_ = current_;
    const bool valid = !named.empty() && named != current_ && ParseAddress(named).ok();
    if (valid && named != not_serving_) {
      current_ = named;
      following_ = true;
      return true;
    }
    if (valid) not_serving_.clear();  // it may be back when it is named next
    if (!addresses_.empty()) current_ = addresses_[++next_ % addresses_.size()];
    return false;
  }
  void Served() { not_serving_.clear(); }

 private:
  const std::vector<std::string> addresses_;
  size_t next_ = 0;  // of addresses_
  std::string current_;
  bool following_ = false;   // current_ was named
  std::string not_serving_;  // was named, and did not serve
};

}  // namespace cairn
