#include "tests/sim/sim_executor.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace cairn::sim {
namespace {

constexpr double kWakeupsLost = 0.02;

}  // namespace

void SimExecutor::Post(std::function<void()> fn) {
  if (!host_.up) return;  // the process has just ended
  if (loses_wakeups_ && running_ && world_.rng.Chance(kWakeupsLost)) return;
  if (running_ || busy_ || IsBusy()) {
    waiting_.push_back(std::move(fn));
    return;
  }
  Run(fn);
  RunWaiting();
}

// By the host's clock; a nanosecond late, because rounding could make it early.
void SimExecutor::PostAfter(absl::Duration delay, std::function<void()> fn) {
  world_.AfterOn(host_, std::max(absl::ZeroDuration(), delay) + absl::Nanoseconds(1),
                 [this, fn = std::move(fn)]() mutable { Post(std::move(fn)); });
}

void SimExecutor::RunAndWait(std::function<void()> fn) {
  CAIRN_CHECK(!running_, "RunAndWait from a closure of the executor would wait for itself");
  if (!host_.up) return;
  for (size_t before = waiting_.size(); before > 0; --before) RunFirst();
  Run(fn);
  RunWaiting();
}

void SimExecutor::Run(const std::function<void()>& fn) {
  running_ = true;
  fn();
  running_ = false;
}

void SimExecutor::RunWaiting() {
  while (!waiting_.empty() && !busy_ && !IsBusy()) RunFirst();
}

void SimExecutor::RunFirst() {
  const std::function<void()> first = std::move(waiting_.front());
  waiting_.pop_front();
  Run(first);
}

bool SimExecutor::IsBusy() {
  if (load_.busy == 0 || !world_.rng.Chance(load_.busy)) return false;
  busy_ = true;
  world_.AfterOn(host_, world_.rng.Between(load_.busy_min, load_.busy_max), [this] {
    busy_ = false;
    if (!waiting_.empty()) RunFirst();
    RunWaiting();
  });
  return true;
}

}  // namespace cairn::sim
