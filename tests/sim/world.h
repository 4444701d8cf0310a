// World: virtual time, the queue of what happens next, and the network's misbehaviour.
//
// Single-threaded. Time passes only from one event to the next, so a run takes as long as its computation. Events at the same time run in the
// order in which they were scheduled.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "tests/sim/rng.h"

namespace cairn::sim {

// How bad the network is; each probability is for one message.
struct NetworkFaults {
  double lost = 0;      // the stream that carried it breaks
  double repeated = 0;  // it arrives twice (requests of the data plane)
  absl::Duration delay_min = absl::Microseconds(50);
  absl::Duration delay_max = absl::Milliseconds(2);
};

class World {
 public:
  World(uint64_t seed, bool trace) : rng(seed), trace_(trace) {}

  absl::Time now() const { return now_; }
  double seconds() const { return absl::ToDoubleSeconds(now_ - absl::UnixEpoch()); }
  void After(absl::Duration delay, std::function<void()> fn) {
    queue_.emplace(std::make_pair(now_ + delay, ++scheduled_), std::move(fn));
  }
  void At(absl::Time when, std::function<void()> fn) {
    queue_.emplace(std::make_pair(std::max(when, now_), ++scheduled_), std::move(fn));
  }
  // Runs events until `done` (asked after each) or until `end`. False: it was not done by then.
  bool RunUntil(absl::Time end, const std::function<bool()>& done) {
    while (!queue_.empty() && !failed()) {
      auto first = queue_.begin();
      if (first->first.first > end) return false;
      now_ = first->first.first;
      std::function<void()> fn = std::move(first->second);
      queue_.erase(first);
      fn();
      ++events_;
      if (done()) return true;
    }
    return false;
  }
  absl::Duration NetworkDelay() { return rng.Between(network.delay_min, network.delay_max); }

  // A violated promise ends the run.
  void Fail(std::string what) {
    if (violation_.empty()) violation_ = absl::StrFormat("at %.6f s: %s", seconds(), what);
    Trace("VIOLATION: %s", what);
  }
  bool failed() const { return !violation_.empty(); }
  const std::string& violation() const { return violation_; }
  uint64_t events() const { return events_; }

  template <typename... Args>
  void Trace(const absl::FormatSpec<Args...>& format, const Args&... args) {
    if (trace_) absl::PrintF("%10.6f  %s\n", seconds(), absl::StrFormat(format, args...));
  }
  bool tracing() const { return trace_; }

  Rng rng;
  NetworkFaults network;

 private:
  const bool trace_;
  absl::Time now_ = absl::UnixEpoch();
  uint64_t scheduled_ = 0, events_ = 0;
  std::map<std::pair<absl::Time, uint64_t>, std::function<void()>> queue_;
  std::string violation_;
};

}  // namespace cairn::sim
