#include "server/core/resting_values.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cairn {

bool RestingValues::Wants(const PartitionEvent& event, bool serves) const {
  if (!copy_.state.at_rest()) return false;
  if (std::holds_alternative<SendImageEvent>(event)) return true;
  const auto* f = std::get_if<FrameEvent>(&event);
  return f != nullptr && f->frame.kind == v1::ExchangeFrame::PULL && serves;
}

void RestingValues::Defer(PartitionEvent event, size_t requests_max) {
  const auto* f = std::get_if<FrameEvent>(&event);
  if (f != nullptr && deferred_.size() >= requests_max) {
    return copy_.ReplyError(f->client, f->frame.request_id,
                            absl::ResourceExhaustedError(absl::StrCat(copy_.config.Name(), ": ", deferred_.size(),
                                                                      " requests wait already; retry")));
  }
  deferred_.push_back(std::move(event));
  copy_.effects.load = !std::exchange(loading_, true);
}

std::deque<PartitionEvent> RestingValues::OnLoaded(LoadedEvent event) {
  if (!std::exchange(loading_, false)) return {};
  const bool at_rest = copy_.state.at_rest();
  if (at_rest && event.state.version != copy_.state.version) {  // its primary has sent another image meanwhile
    copy_.effects.load = loading_ = !deferred_.empty();
    return {};
  }
  if (at_rest) copy_.state = std::move(event.state);
  return std::exchange(deferred_, {});
}

void RestingValues::OnClientGone(uint64_t client) {
  std::erase_if(deferred_, [&](const PartitionEvent& e) {
    const auto* deferred = std::get_if<FrameEvent>(&e);
    return deferred != nullptr && deferred->client == client;
  });
}

std::vector<PartitionReply> RestingValues::End(const absl::Status& why) {
  std::vector<PartitionReply> replies;
  for (const PartitionEvent& event : std::exchange(deferred_, {})) {
    const auto* f = std::get_if<FrameEvent>(&event);
    if (f != nullptr) replies.push_back(copy_.MakeError(f->client, f->frame.request_id, why));
  }
  return replies;
}

bool RestingValues::image_waits() const {
  return std::any_of(deferred_.begin(), deferred_.end(),
                     [](const PartitionEvent& e) { return std::holds_alternative<SendImageEvent>(e); });
}

}  // namespace cairn
