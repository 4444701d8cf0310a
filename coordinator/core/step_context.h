// StepContext: the time of the Step that runs, its effects, and the domain events that its parts raise.
//
// A part of the core may call the parts below it (component.h). What concerns a part above it, it raises as a domain
// event; ClusterCore takes them out, in the order in which they were raised, when the part has returned.
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
#include "coordinator/core/events.h"
#include "coordinator/core/membership.h"

namespace cairn {

// ---- domain events; one of a job that no longer exists means nothing ----

struct ReasonDue {  // the reason why it waits may have changed
  uint64_t job = 0;
};
struct JobAdvanced {  // a figure, a checkpoint or a file is there that its next epoch or its end may have waited for
  uint64_t job = 0;
};
struct AssignmentsSent {  // its workers were told what they compute; the chief may have changed
  uint64_t job = 0;
};
struct CopiesChanged {  // its copies, or the nodes that hold them
  uint64_t job = 0;
};
struct ReadinessDue {};   // a ps is to be told whether it is ready
struct QueueChanged {};   // a job was queued
struct SlotsChanged {};   // nodes or slots came or went: the queue, and who computes what of all jobs
struct QueueLookedAt {};  // what queued jobs wait for may have changed

using DomainEvent = std::variant<ReasonDue, JobAdvanced, AssignmentsSent, CopiesChanged, ReadinessDue, QueueChanged,
                                 SlotsChanged, QueueLookedAt>;

class StepContext {
 public:
  // last_request_id: random, so that answers to requests of an earlier life match nothing.
  StepContext(uint64_t last_request_id, absl::Time now) : last_request_id_(last_request_id), now_(now) {}

  // A Step begins; what the one before it left is gone.
  void Begin(absl::Time now);
  Effects TakeEffects() { return std::exchange(effects_, {}); }

  absl::Time now() const { return now_; }
  uint64_t NextRequestId() { return ++last_request_id_; }

  void Raise(DomainEvent event) { raised_.push_back(event); }
  // The oldest one; nullopt: none is left.
  std::optional<DomainEvent> TakeRaised();

  template <typename T>
  void Emit(T effect) {
    effects_.emplace_back(std::in_place_type<T>, std::move(effect));
  }
  // To a node without a session nothing is sent: it says what it has when it comes back.
  void Send(const ClusterNode& node, v1::CoordinatorMessage message);
  void ReplyError(ReplyToken token, absl::Status status);
  template <typename... Args>
  void Log(const absl::FormatSpec<Args...>& format, const Args&... args) {
    Emit(LogLine{false, absl::StrFormat(format, args...)});
  }
  template <typename... Args>
  void Warn(const absl::FormatSpec<Args...>& format, const Args&... args) {
    Emit(LogLine{true, absl::StrFormat(format, args...)});
  }

 private:
  uint64_t last_request_id_;
  absl::Time now_;
  Effects effects_;
  std::deque<DomainEvent> raised_;
};

}  // namespace cairn
