// CallTurns: users' calls that have come and are not begun. Machines take turns, so that whoever makes many calls waits
// for his own; and they begin one at a time, with what else the executor has to do between them.
//
// Thread-safe. Invariant: the calls of one machine begin in the order in which they came.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace cairn {

class CallTurns {
 public:
  using Begin = std::function<void()>;

  // True: no other call waits, so whoever added it sees to it that it begins.
  bool Add(const std::string& machine, Begin begin) {
    absl::MutexLock lock(&mutex_);
    std::deque<Begin>& of_machine = waiting_[machine];
    if (of_machine.empty()) turns_.push_back(machine);
    of_machine.push_back(std::move(begin));
    return ++count_ == 1;
  }

  // The next one to begin; null: none waits. It counts as waiting until Began.
  Begin Next() {
    absl::MutexLock lock(&mutex_);
    if (turns_.empty()) return nullptr;
    const auto found = waiting_.find(turns_.front());
    turns_.pop_front();
    Begin begin = std::move(found->second.front());
    found->second.pop_front();
    if (found->second.empty()) {
      waiting_.erase(found);
    } else {
      turns_.push_back(found->first);
    }
    return begin;
  }

  // The last Next has begun. True: others wait.
  bool Began() {
    absl::MutexLock lock(&mutex_);
    return --count_ > 0;
  }

 private:
  absl::Mutex mutex_;
  std::map<std::string, std::deque<Begin>> waiting_ ABSL_GUARDED_BY(mutex_);  // by machine; none is empty
  std::deque<std::string> turns_ ABSL_GUARDED_BY(mutex_);                     // machines of which some wait
  size_t count_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn
