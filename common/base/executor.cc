#include "common/base/executor.h"

#include <pthread.h>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/base/check.h"

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
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    wake_.Signal();
  }
  CAIRN_CHECK(!OnThread(), "an executor cannot stop itself");
  if (thread_.joinable()) thread_.join();
}

void SerialExecutor::Post(std::function<void()> fn) {
  absl::MutexLock lock(&mutex_);
  if (stopping_) return;
  ready_.push_back(std::move(fn));
  if (ready_.size() == 1) wake_.Signal();
}

void SerialExecutor::PostAfter(absl::Duration delay, std::function<void()> fn) {
  absl::MutexLock lock(&mutex_);
  if (stopping_) return;
  timers_.emplace(absl::Now() + delay, std::move(fn));
  wake_.Signal();
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

void SerialExecutor::Loop() {
  std::vector<std::function<void()>> batch;
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      while (ready_.empty()) {
        if (stopping_) return;
        const absl::Time now = absl::Now();
        while (!timers_.empty() && timers_.begin()->first <= now) {
          ready_.push_back(std::move(timers_.begin()->second));
          timers_.erase(timers_.begin());
        }
        if (!ready_.empty()) break;
        if (timers_.empty()) {
          wake_.Wait(&mutex_);
        } else {
          wake_.WaitWithDeadline(&mutex_, timers_.begin()->first);
        }
      }
      // Timers that came due while closures were queued run after them.
      const absl::Time now = absl::Now();
      while (!stopping_ && !timers_.empty() && timers_.begin()->first <= now) {
        ready_.push_back(std::move(timers_.begin()->second));
        timers_.erase(timers_.begin());
      }
      batch.swap(ready_);
    }
    for (auto& fn : batch) {
      fn();
      fn = nullptr;  // what it captured is released before the next one runs
    }
    batch.clear();
  }
}

}  // namespace cairn
