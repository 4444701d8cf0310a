// StepContext: the time of the running Step, its effects, and the domain events that the core's parts raise.
//
// A part of the core may call the parts below it (component.h). To notify a part above it, it raises a domain event;
// ClusterCore delivers the events, in the order in which they were raised, when the part has returned.
//
// Not thread-safe; one core owns it. Invariants:
//   1. Time never goes back.
//   2. Effects are carried out in the order in which they were emitted; a Store is durable before those after it.
//   3. No domain event is left when a Step ends.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"
#include "coordinator/core/event_log.h"
#include "coordinator/core/events.h"
#include "coordinator/core/membership.h"

namespace cairn {

// ---- domain events; an event of a job that no longer exists is ignored ----

struct ReasonDue {  // the reason why the job waits may have changed
  uint64_t job = 0;
};
struct JobAdvanced {  // a figure, checkpoint or file has arrived, for which the next epoch or the end may have waited
  uint64_t job = 0;
};
struct AssignmentsSent {  // the job's workers were sent their assignments; the chief may have changed
  uint64_t job = 0;
};
struct CopiesChanged {  // the job's copies, or the nodes that hold them, have changed
  uint64_t job = 0;
};
struct ReadinessDue {};   // a ps has to be told whether it is ready
struct QueueChanged {};   // a job was queued
struct SlotsChanged {};   // nodes or slots came or went: examine the queue, and the assignments of all jobs
struct QueueLookedAt {};  // the queue was examined: the reasons of queued jobs may have changed

using DomainEvent = std::variant<ReasonDue, JobAdvanced, AssignmentsSent, CopiesChanged, ReadinessDue, QueueChanged,
                                 SlotsChanged, QueueLookedAt>;

class StepContext {
 public:
  // last_request_id: random, so that replies to requests of an earlier process match nothing.
  StepContext(uint64_t last_request_id, absl::Time now)
      : last_request_id_(last_request_id), now_(now), event_log_(now, last_request_id) {}

  // A Step begins; effects and events left by the previous one are dropped.
  void Begin(absl::Time now);
  Effects TakeEffects() { return std::exchange(effects_, {}); }

  absl::Time now() const { return now_; }
  uint64_t NextRequestId() { return ++last_request_id_; }

  void Raise(DomainEvent event) { raised_.push_back(event); }
  // The oldest event; nullopt: none is left.
  std::optional<DomainEvent> TakeRaised();

  template <typename T>
  void Emit(T effect) {
    effects_.emplace_back(std::in_place_type<T>, std::move(effect));
  }
  // Sends nothing to a node without a session: it reports what it has when it comes back.
  void Send(const ClusterNode& node, v1::CoordinatorMessage message);
  void ReplyError(ReplyToken token, absl::Status status);
  // A line of the log, which is also kept as an event.
  void Tell(LogLine line);
  template <typename... Args>
  void Log(EventSubject about, const absl::FormatSpec<Args...>& format, const Args&... args) {
    Tell(LogLine{false, std::move(about), absl::StrFormat(format, args...)});
  }
  template <typename... Args>
  void Warn(EventSubject about, const absl::FormatSpec<Args...>& format, const Args&... args) {
    Tell(LogLine{true, std::move(about), absl::StrFormat(format, args...)});
  }
  const EventLog& event_log() const { return event_log_; }

 private:
  uint64_t last_request_id_;
  absl::Time now_;
  Effects effects_;
  std::deque<DomainEvent> raised_;
  EventLog event_log_;
};

}  // namespace cairn
