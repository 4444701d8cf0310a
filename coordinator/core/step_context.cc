#include "coordinator/core/step_context.h"

#include <algorithm>

namespace cairn {

void StepContext::Begin(absl::Time now) {
  now_ = std::max(now_, now);
  effects_.clear();
  raised_.clear();
}

std::optional<DomainEvent> StepContext::TakeRaised() {
  if (raised_.empty()) return std::nullopt;
  const DomainEvent event = raised_.front();
  raised_.pop_front();
  return event;
}

void StepContext::Send(const ClusterNode& node, v1::CoordinatorMessage message) {
  if (node.connected()) Emit(SendCommand{node.lease.session(), std::move(message)});
}

void StepContext::Tell(LogLine line) {
  event_log_.Add(now_, line);
  Emit(std::move(line));
}

void StepContext::ReplyError(ReplyToken token, absl::Status status) { Emit(Reply{token, std::move(status), {}}); }

}  // namespace cairn
