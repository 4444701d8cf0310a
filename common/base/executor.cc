#include "common/base/executor.h"

#include <pthread.h>

#include <algorithm>

#include "absl/synchronization/notification.h"
#include "common/base/check.h"
#include "common/base/limits.h"

namespace cairn {
SerialExecutor::SerialExecutor(std::string name) {
  thread_ = std::thread([this, name = name.substr(0, 15)] {
    pthread_setname_np(pthread_self(), name.c_str());
    Loop();
  });
}

SerialExecutor::~SerialExecutor() { Stop(); }

void SerialExecutor::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_one();
  }
  CAIRN_CHECK(!OnThread(), "an executor cannot stop itself");
  if (thread_.joinable()) thread_.join();
}

void SerialExecutor::Post(std::function<void()> fn) {
  std::lock_guard lock(mutex_);
  if (stopping_) return;
  ready_.push_back(std::move(fn));
  if (ready_.size() == 1) wake_.notify_one();
}

void SerialExecutor::PostAfter(absl::Duration delay, std::function<void()> fn) {
  const SteadyTime at = std::chrono::steady_clock::now() +
                        absl::ToChronoNanoseconds(std::clamp(delay, absl::ZeroDuration(), absl::Hours(kDelayHoursMax)));
  std::lock_guard lock(mutex_);
  if (stopping_) return;
  timers_.emplace(at, std::move(fn));
  wake_.notify_one();
}

void SerialExecutor::RunAndWait(std::function<void()> fn) {
  CAIRN_CHECK(!OnThread(), "RunAndWait from the executor's own thread would wait for itself");
  absl::Notification done;
  Post([&] {
    fn();
    done.Notify();
  });
  done.WaitForNotification();
}

void SerialExecutor::TakeDue() {
  const SteadyTime now = std::chrono::steady_clock::now();
  while (!timers_.empty() && timers_.begin()->first <= now) {
    ready_.push_back(std::move(timers_.begin()->second));
    timers_.erase(timers_.begin());
  }
}

void SerialExecutor::Loop() {
  std::vector<std::function<void()>> batch;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      while (ready_.empty()) {
        if (stopping_) return;
        TakeDue();
        if (!ready_.empty()) break;
        if (timers_.empty()) {
          wake_.wait(lock);
        } else {
          wake_.wait_until(lock, timers_.begin()->first);
        }
      }
      // Timers that came due while closures were queued run after them.
      if (!stopping_) TakeDue();
      batch.swap(ready_);
    }
    for (auto& fn : batch) {
      fn();
      fn = nullptr;  // releases its captures before the next closure runs
    }
    batch.clear();
  }
}

}  // namespace cairn
