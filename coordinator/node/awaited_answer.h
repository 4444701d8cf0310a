// AwaitedAnswer: what a thread that can wait, as HTTP's do, gets from the driver's executor.
//
// Thread-safe; shared by the one that waits and the one that answers, who may come after the other has given up.
// Invariant: nobody waits longer than `patience`.
#pragma once

#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/status.h"

namespace cairn {

inline constexpr absl::string_view kCoreIsBusy =
    "the coordinator is busy: its core did not answer in time; try again later";

template <typename T>
class AwaitedAnswer {
 public:
  void Put(absl::StatusOr<T> answer) {
    absl::MutexLock lock(&mutex_);
    answer_ = std::move(answer);
  }

  // Call once. Errors: the answer's own; DEADLINE_EXCEEDED: there is none yet, which `late` says; what was asked for is
  // still done.
  absl::StatusOr<T> Wait(absl::Duration patience, absl::string_view late = kCoreIsBusy) {
    absl::MutexLock lock(&mutex_);
    if (mutex_.AwaitWithTimeout(absl::Condition(this, &AwaitedAnswer::Answered), patience)) return *std::move(answer_);
    return absl::DeadlineExceededError(late);
  }

 private:
  bool Answered() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return answer_.has_value(); }

  absl::Mutex mutex_;
  std::optional<absl::StatusOr<T>> answer_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
