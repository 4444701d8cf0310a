// CoreQuestions: blocking queries of the cluster's state, for threads that can wait, as HTTP's do. JobService queries
// the core in the same way, but without blocking a thread.
//
// Thread-safe. Invariants:
//   1. No caller waits longer than `patience`. At most kQuestionsWaitingMax questions wait for the core, so that it is
//      never blocked and its load is bounded, however many callers there are.
//   2. A question whose caller has given up is still carried out, and its answer dropped.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "coordinator/core/limits.h"
#include "coordinator/node/awaited_answer.h"
#include "coordinator/node/cluster_driver.h"

namespace cairn {

class CoreQuestions {
 public:
  static constexpr absl::Duration kPatience = absl::Seconds(3);

  // Driver and clock (thread-safe) outlive it.
  CoreQuestions(ClusterDriver* driver, Clock* clock, absl::Duration patience = kPatience)
      : driver_(driver), clock_(clock), patience_(patience) {}

  // Errors: the question's own; UNAVAILABLE this coordinator does not lead (kLeaderPayload); DEADLINE_EXCEEDED,
  // RESOURCE_EXHAUSTED the core is busy.
  template <typename T>
  absl::StatusOr<T> Ask(std::function<absl::StatusOr<T>(const ClusterCore&, absl::Time now)> question) {
    const auto reply = std::make_shared<AwaitedAnswer<T>>();
    if (!Post([reply, question = std::move(question)](const ClusterCore& core,
                                                      absl::Time now) { reply->Put(question(core, now)); },
              [reply](const absl::Status& status) { reply->Put(status); })) {
      return absl::ResourceExhaustedError("the coordinator is busy: too many questions wait; try again later");
    }
    return reply->Wait(patience_);
  }

  // OK if this coordinator leads, else why not.
  absl::Status Leads() {
    return Ask<bool>([](const ClusterCore&, absl::Time) { return true; }).status();
  }

  // How long the oldest waiting question has waited for the core. If none waits, posts one, so that the next call has
  // something to measure.
  absl::Duration Silence() {
    absl::Duration silence;
    bool idle = false;
    {
      absl::MutexLock lock(&waiting_->mutex);
      idle = waiting_->since.empty();
      silence = idle ? absl::ZeroDuration() : clock_->Now() - *waiting_->since.begin();
    }
    if (idle) Post([](const ClusterCore&, absl::Time) {}, [](const absl::Status&) {});
    return silence;
  }

 private:
  struct Waiting {
    absl::Mutex mutex;
    std::multiset<absl::Time> since ABSL_GUARDED_BY(mutex);
  };

  // One of the two is called. False: too many questions wait, and neither is called.
  bool Post(std::function<void(const ClusterCore&, absl::Time)> query,
            std::function<void(const absl::Status&)> otherwise) {
    const absl::Time now = clock_->Now();
    {
      absl::MutexLock lock(&waiting_->mutex);
      if (waiting_->since.size() >= kQuestionsWaitingMax) return false;
      waiting_->since.insert(now);
    }
    const auto done = [waiting = waiting_, now] {
      absl::MutexLock lock(&waiting->mutex);
      waiting->since.erase(waiting->since.find(now));
    };
    driver_->Query(
        ClusterDriver::kPages,
        [query = std::move(query), done](const ClusterCore& core, absl::Time at) {
          query(core, at);
          done();
        },
        [otherwise = std::move(otherwise), done](const absl::Status& status) {
          otherwise(status);
          done();
        });
    return true;
  }

  ClusterDriver* const driver_;
  Clock* const clock_;
  const absl::Duration patience_;
  const std::shared_ptr<Waiting> waiting_ =
      std::make_shared<Waiting>();  // questions in flight keep it alive after this object
};

}  // namespace cairn
