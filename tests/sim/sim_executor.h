// The thread and the clock of a simulated process, passed to its drivers.
#pragma once

#include <deque>
#include <functional>

#include "common/base/clock.h"
#include "common/base/executor.h"
#include "tests/sim/world.h"

namespace cairn::sim {

// The host's own clock.
class SimClock : public Clock {
 public:
  SimClock(const World& world, const Host& host) : world_(world), host_(host) {}
  absl::Time Now() override { return world_.ClockOf(host_); }

 private:
  const World& world_;
  const Host& host_;
};

// Runs a closure directly where it is posted, which costs no event of the world; one that is posted while another runs
// is run after it, as on a thread. If the thread is busy, the first waiting closure is delayed, and all others behind
// it, which reorders the work of different threads.
//
// Invariants: those of Executor; closures that wait when the process ends never run. RunAndWait runs waiting closures
// at once: blocking takes no virtual time.
class SimExecutor : public Executor {
 public:
  struct Load {
    double busy = 0;  // the probability that a closure is delayed; 1: every closure is
    absl::Duration busy_min, busy_max;
  };

  // For the host's current process. loses_wakeups: PlantedBug::kLoseWakeup.
  SimExecutor(World& world, Host& host, const Load& load, bool loses_wakeups = false)
      : world_(world), host_(host), load_(load), loses_wakeups_(loses_wakeups) {}

  void Post(std::function<void()> fn) override;
  void PostAfter(absl::Duration delay, std::function<void()> fn) override;
  void RunAndWait(std::function<void()> fn) override;
  void Stop() override { waiting_.clear(); }  // processes are killed: waiting closures do not run

 private:
  void Run(const std::function<void()>& fn);
  void RunFirst();
  void RunWaiting();
  // True: the first waiting closure is delayed further.
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
