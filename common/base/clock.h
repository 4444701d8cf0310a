// Time as something that is handed in: cores and nodes ask a Clock, tests and the simulator own one.
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

// The steady clock, shown as a wall time: its zero is the wall time at construction. Thread-safe.
class RealClock : public Clock {
 public:
  absl::Time Now() override { return wall_zero_ + absl::FromChrono(std::chrono::steady_clock::now() - steady_zero_); }

 private:
  const absl::Time wall_zero_ = absl::Now();
  const std::chrono::steady_clock::time_point steady_zero_ = std::chrono::steady_clock::now();
};

// Stands still until told. Not thread-safe.
class ManualClock : public Clock {
 public:
  absl::Time Now() override { return now_; }
  void Advance(absl::Duration d) { now_ += d; }

 private:
  absl::Time now_ = absl::FromUnixSeconds(1'000'000'000);
};

}  // namespace cairn
