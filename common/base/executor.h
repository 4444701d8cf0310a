// Executor: runs closures in the order posted, never two at once. Cores are driven on one. Drivers take an Executor, so
// that the simulator (tests/sim) can pass its own.
// SerialExecutor: an Executor with its own thread.
//
// Thread rule: Post and PostAfter from any thread, including its own. The destructor (or Stop) runs posted closures,
// drops timers that are not due, and joins; afterwards Post drops its closure.
// Invariants:
//   1. Closures never overlap and run in the order of Post.
//   2. A closure posted by PostAfter runs no earlier than its time, and after closures posted before it was due.
//   3. Timers use the steady clock: changes of the wall clock do not affect them.
// The queue is unbounded: a caller that posts for a peer must hold the peer's credit (bytes) until the closure has run.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"

namespace cairn {

class Executor {
 public:
  virtual ~Executor() = default;
  virtual void Post(std::function<void()> fn) = 0;
  virtual void PostAfter(absl::Duration delay, std::function<void()> fn) = 0;
  // Runs fn after the closures posted before it, and waits for it. Not from a closure of this executor.
  virtual void RunAndWait(std::function<void()> fn) = 0;
  virtual void Stop() = 0;
};

class SerialExecutor final : public Executor {
 public:
  explicit SerialExecutor(std::string name);  // the thread's name, at most 15 characters are shown
  ~SerialExecutor() override;
  SerialExecutor(const SerialExecutor&) = delete;
  SerialExecutor& operator=(const SerialExecutor&) = delete;

  void Post(std::function<void()> fn) override;
  void PostAfter(absl::Duration delay, std::function<void()> fn) override;
  void RunAndWait(std::function<void()> fn) override;
  void Stop() override;
  bool OnThread() const { return std::this_thread::get_id() == thread_.get_id(); }

 private:
  using SteadyTime = std::chrono::steady_clock::time_point;

  void Loop();
  void TakeDue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::mutex mutex_;  // from the standard library: Abseil's condition variable waits by the wall clock
  std::condition_variable wake_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::function<void()>> ready_ ABSL_GUARDED_BY(mutex_);
  std::multimap<SteadyTime, std::function<void()>> timers_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace cairn
