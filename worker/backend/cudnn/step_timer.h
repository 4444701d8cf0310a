// StepTimer: measures the steps of a program, and so decides how long it waits for one (StepPatience, watched.h).
//
// Used on the program's thread. The time of a step counts from when all of it was launched: the time of launching, with
// the waits of a WeightSource, is the host's. The first step of a plan loads kernels and may choose engines by time:
// the program waits longer for it and does not count it.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "worker/backend/cudnn/watched.h"

namespace cairn::cudnn {

class StepTimer {
 public:
  explicit StepTimer(std::shared_ptr<Clock> clock) : clock_(std::move(clock)) {}

  // A step begins; first: of its plan.
  void Begin(bool first) {
    first_ = first;
    patience_ = StepPatience(first, slowest_);
  }
  void Launched() { launched_ = clock_->Now(); }
  void Done() {
    if (!first_) slowest_ = std::max(slowest_, clock_->Now() - launched_);
  }

  absl::Duration patience() const { return patience_; }  // how long to wait for the current step
  absl::Duration slowest() const { return slowest_; }    // the longest time of a step that counts; 0: none yet

 private:
  const std::shared_ptr<Clock> clock_;
  bool first_ = true;
  absl::Time launched_;
  absl::Duration slowest_, patience_;
};

}  // namespace cairn::cudnn
