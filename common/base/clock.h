// Clock: time as a dependency that is passed in. Cores and nodes read a Clock; tests and the simulator control one.
#pragma once

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace cairn {

class Clock {
 public:
  virtual ~Clock() = default;
  // Never goes back within one process.
  virtual absl::Time Now() = 0;
};

// The steady clock as wall time, anchored to the wall clock at construction. Thread-safe.
class RealClock : public Clock {
 public:
  absl::Time Now() override { return wall_zero_ + absl::FromChrono(std::chrono::steady_clock::now() - steady_zero_); }

 private:
  const absl::Time wall_zero_ = absl::Now();
  const std::chrono::steady_clock::time_point steady_zero_ = std::chrono::steady_clock::now();
};

// Moves only by Advance. Not thread-safe.
class ManualClock : public Clock {
 public:
  absl::Time Now() override { return now_; }
  void Advance(absl::Duration d) { now_ += d; }

 private:
  absl::Time now_ = absl::FromUnixSeconds(1'000'000'000);
};

}  // namespace cairn
