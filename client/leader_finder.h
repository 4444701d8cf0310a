// LeaderFinder: chooses which of several coordinators to call: the one that answered last, the leader that a standby
// named, else the next in the list.
//
// Not thread-safe. Invariants: 1. A named leader is tried at once, but not again right after it failed to serve: a
// standby keeps naming a dead leader until its lease expires. 2. Between two attempts at the same named leader,
// addresses of the list are tried.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/rpc/address.h"

namespace cairn {

class LeaderFinder {
 public:
  explicit LeaderFinder(std::vector<std::string> addresses) : addresses_(std::move(addresses)) {
    if (!addresses_.empty()) current_ = addresses_[0];
  }

  const std::string& current() const { return current_; }
  bool several() const { return addresses_.size() > 1; }

  // current() did not serve. named: the leader that it named, as received from the peer; may be empty or invalid.
  // True: call the new current() at once; false: back off first.
  bool Failed(const std::string& named) {
    const bool was_named = std::exchange(following_, false);
    if (was_named) not_serving_ = current_;
    const bool valid = !named.empty() && named != current_ && ParseAddress(named).ok();
    if (valid && named != not_serving_) {
      current_ = named;
      following_ = true;
      return true;
    }
    if (valid) not_serving_.clear();  // it may be back when it is named again
    if (!addresses_.empty()) current_ = addresses_[++next_ % addresses_.size()];
    return false;
  }
  void Served() { not_serving_.clear(); }

 private:
  const std::vector<std::string> addresses_;
  size_t next_ = 0;  // index into addresses_
  std::string current_;
  bool following_ = false;   // current_ was named by a standby
  std::string not_serving_;  // the named leader that did not serve
};

}  // namespace cairn
