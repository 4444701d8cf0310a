// World: virtual time, the queue of future events, and the hosts on which processes run.
//
// Single-threaded. Time advances only from one event to the next, so a run takes as long as its computation. Events at
// the same time run in the order in which they were scheduled. Invariant: nothing runs in a process that has ended, or
// on a host that is paused.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "tests/sim/rng.h"

namespace cairn::sim {

// A machine with at most one simulated process. Its clock has its own zero and rate; while it is paused (a stopped
// process, a busy machine), its events wait.
struct Host {
  explicit Host(std::string host_name) : name(std::move(host_name)) {}

  const std::string name;
  bool up = false;
  uint64_t process = 0;  // number of starts
  absl::Time started;    // of the current process
  absl::Time still_until = absl::InfinitePast();
  double clock_rate = 1;                           // its seconds per second of the world
  absl::Duration clock_offset;                     // its clock at the world's zero
  absl::Time last_trouble = absl::InfinitePast();  // when it last may have been taken for dead
  double cpu = 1;                                  // computation takes this many times as long
  absl::Duration network_delay;                    // added to every message from and to it
};

class World {
 public:
  World(uint64_t seed, bool trace, std::string checker = "") : rng(seed), trace_(trace), checker_(std::move(checker)) {}

  absl::Time now() const { return now_; }
  double seconds() const { return absl::ToDoubleSeconds(now_ - absl::UnixEpoch()); }
  void After(absl::Duration delay, std::function<void()> fn) { At(now_ + delay, std::move(fn)); }
  void At(absl::Time when, std::function<void()> fn) {
    uint32_t place;
    if (free_.empty()) {
      place = static_cast<uint32_t>(closures_.size());
      closures_.push_back(std::move(fn));
    } else {
      place = free_.back();
      free_.pop_back();
      closures_[place] = std::move(fn);
    }
    queue_.push_back({std::max(when, now_), ++scheduled_, place});
    std::push_heap(queue_.begin(), queue_.end(), ComesLater);
  }

  // The time on the host's own clock.
  absl::Time ClockOf(const Host& host) const {
    return absl::UnixEpoch() + host.clock_offset + (now_ - absl::UnixEpoch()) * host.clock_rate;
  }
  // Runs fn in the host's current process after `delay` on its own clock; not at all if the process ends first.
  void AfterOn(Host& host, absl::Duration delay, std::function<void()> fn) {
    RunOn(host, host.process, now_ + delay / host.clock_rate, std::move(fn));
  }
  // Runs fn in that process at the world's time `when`.
  void RunOn(Host& host, uint64_t process, absl::Time when, std::function<void()> fn) {
    At(when, [this, &host, process, fn = std::move(fn)]() mutable {
      if (!host.up || host.process != process) return;
      if (host.still_until > now_) return RunOn(host, process, host.still_until, std::move(fn));
      fn();
    });
  }

  // Runs events until `done` (called after each) or until `end`. False: it was not done by then.
  bool RunUntil(absl::Time end, const std::function<bool()>& done) {
    while (!queue_.empty() && !failed()) {
      if (queue_.front().when > end) return false;
      std::pop_heap(queue_.begin(), queue_.end(), ComesLater);
      const Scheduled first = queue_.back();
      queue_.pop_back();
      now_ = first.when;
      const std::function<void()> fn = std::exchange(closures_[first.place], nullptr);
      free_.push_back(first.place);
      fn();
      ++events_;
      if (done()) return true;
    }
    return false;
  }

  // A violated promise ends the run.
  void Fail(const std::string& what) {
    if (what.compare(0, checker_.size(), checker_) != 0) return;  // from a checker that is ignored
    if (violation_.empty()) violation_ = absl::StrFormat("at %.6f s: %s", seconds(), what);
    Trace("VIOLATION: %s", what);
  }
  bool failed() const { return !violation_.empty(); }
  const std::string& violation() const { return violation_; }
  uint64_t events() const { return events_; }

  template <typename... Args>
  void Trace(const absl::FormatSpec<Args...>& format, const Args&... args) {
    if (trace_) absl::PrintF("%11.6f  %s\n", seconds(), absl::StrFormat(format, args...));
  }
  bool tracing() const { return trace_; }

  Rng rng;

 private:
  struct Scheduled {
    absl::Time when;
    uint64_t number = 0;
    uint32_t place = 0;  // in closures_
  };
  static bool ComesLater(const Scheduled& a, const Scheduled& b) {
    return a.when != b.when ? a.when > b.when : a.number > b.number;
  }

  const bool trace_;
  const std::string checker_;
  absl::Time now_ = absl::UnixEpoch();
  uint64_t scheduled_ = 0, events_ = 0;
  std::vector<Scheduled> queue_;                 // a heap, the next one first
  std::vector<std::function<void()>> closures_;  // of queue_; empty at the places in free_
  std::vector<uint32_t> free_;
  std::string violation_;
};

}  // namespace cairn::sim
