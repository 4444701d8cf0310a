// An executor for tests: runs closures when the test lets time pass.
//
// Not thread-safe.
#pragma once

#include <functional>
#include <map>
#include <utility>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/executor.h"

namespace cairn {

class HeldExecutor : public Executor {
 public:
  explicit HeldExecutor(ManualClock& clock) : clock_(clock) {}
  void Post(std::function<void()> fn) override { PostAfter(absl::ZeroDuration(), std::move(fn)); }
  void PostAfter(absl::Duration delay, std::function<void()> fn) override {
    due_.emplace(clock_.Now() + delay, std::move(fn));
  }
  void RunAndWait(std::function<void()> fn) override { fn(); }
  void Stop() override { due_.clear(); }

  void Pass(absl::Duration time) {
    clock_.Advance(time);
    while (!due_.empty() && due_.begin()->first <= clock_.Now()) due_.extract(due_.begin()).mapped()();
  }
  size_t timers() const { return due_.size(); }

 private:
  ManualClock& clock_;
  std::multimap<absl::Time, std::function<void()>> due_;
};

}  // namespace cairn
