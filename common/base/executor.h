// SerialExecutor: one thread that runs closures in the order posted. What a core is driven by.
//
// Thread rule: Post and PostAfter from any thread, also from its own. The destructor (or Stop) runs what was posted, drops
// timers that are not due, and joins; after it, Post drops its closure.
// Invariants:
//   1. Closures never overlap and run in the order of Post.
//   2. A closure posted by PostAfter runs not before its time, after the closures posted before it was due.
// The queue itself has no bound: who posts on behalf of a peer holds that peer's credit (bytes) until its closure ran.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace cairn {

class SerialExecutor {
 public:
  explicit SerialExecutor(std::string name);  // the thread's name, at most 15 characters are shown
  ~SerialExecutor();
  SerialExecutor(const SerialExecutor&) = delete;
  SerialExecutor& operator=(const SerialExecutor&) = delete;

  void Post(std::function<void()> fn);
  void PostAfter(absl::Duration delay, std::function<void()> fn);
  void Stop();
  // Runs fn there and waits for it. Not from the executor's own thread.
  void RunAndWait(std::function<void()> fn);
  bool OnThread() const { return std::this_thread::get_id() == thread_.get_id(); }

 private:
  void Loop();

  absl::Mutex mutex_;
  absl::CondVar wake_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::function<void()>> ready_ ABSL_GUARDED_BY(mutex_);
  std::multimap<absl::Time, std::function<void()>> timers_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace cairn
