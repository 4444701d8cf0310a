// A thread and the clock of a simulated process, as its drivers are given them.
#pragma once

#include <deque>
#include <functional>

#include "common/base/clock.h"
#include "common/base/executor.h"
#include "tests/sim/world.h"

namespace cairn::sim {

// What the host's own clock shows.
class SimClock : public Clock {
 public:
  SimClock(const World& world, const Host& host) : world_(world), host_(host) {}
  absl::Time Now() override { return world_.ClockOf(host_); }

 private:
  const World& world_;
  const Host& host_;
};

// Runs a closure where it is posted, for that costs no event of the world; but one that is posted while another runs
// after it, as on a thread. Where the thread is busy the first closure that waits does so for a while, and all others
// behind it: what two threads do then comes in another order.
//
// Invariants: those of Executor; what waits when the process ends never runs. RunAndWait runs at once what waits: who
// blocks has no time of its own.
class SimExecutor : public Executor {
 public:
  struct Load {
    double busy = 0;  // the chance that a closure has to wait; 1: each takes so long
    absl::Duration busy_min, busy_max;
  };

  // Of the host's present process. loses_wakeups: PlantedBug::kLoseWakeup.
  SimExecutor(World& world, Host& host, const Load& load, bool loses_wakeups = false)
      : world_(world), host_(host), load_(load), loses_wakeups_(loses_wakeups) {}

  void Post(std::function<void()> fn) override;
  void PostAfter(absl::Duration delay, std::function<void()> fn) override;
  void RunAndWait(std::function<void()> fn) override;
  void Stop() override { waiting_.clear(); }  // processes are killed: nothing is run to its end

 private:
  void Run(const std::function<void()>& fn);
  void RunFirst();
  void RunWaiting();
  // True: the first that waits has to wait on.
  bool IsBusy();

  World& world_;
  Host& host_;
  const Load load_;
  const bool loses_wakeups_;
  std::deque<std::function<void()>> waiting_;
  bool running_ = false;
  bool busy_ = false;  // an event of the world ends it
};

}  // namespace cairn::sim
