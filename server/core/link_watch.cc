#include "server/core/link_watch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/core/limits.h"

namespace cairn {

void LinkWatch::Restart() {
  progress_at_ = attempt_at_ = absl::InfinitePast();
  tried_ = false;
}

void LinkWatch::ImageSent() {
  if (!std::exchange(tried_, true)) progress_at_ = absl::InfinitePast();  // the clock starts
  attempt_at_ = absl::InfinitePast();
}

void LinkWatch::Confirmed(absl::Time now) {
  progress_at_ = attempt_at_ = now;
  tried_ = false;
}

void LinkWatch::Watch(absl::Time now, bool idle) {
  if (idle || progress_at_ == absl::InfinitePast()) progress_at_ = now;
  if (idle || attempt_at_ == absl::InfinitePast()) attempt_at_ = now;
}

void LinkWatch::Paused(absl::Duration gap) {
  progress_at_ += gap;
  attempt_at_ += gap;
}

std::optional<LinkWatch::Loss> LinkWatch::Lost(absl::Time now, const Link& link, const PeerState& peer) const {
  if (progress_at_ == absl::InfinitePast()) return std::nullopt;
  if (link.wants_image && !tried_) return std::nullopt;  // it waits for its turn
  const absl::Duration stalled = now - attempt_at_;
  const absl::Duration silent = now - std::max({progress_at_, answered_at_, peer.heard});
  const bool alive = peer.connected && link.has_stream;
  const absl::Duration patience = absl::Seconds(link.unconfirmed_bytes / kLinkBytesPerSecond);
  const std::string silence =
      absl::StrCat(link.has_stream ? "no answer for " : "no connection for ", absl::ToInt64Seconds(silent), " s");
  if (!alive && silent >= kLinkSilentMax + patience) return Loss{silence};
  if (alive && silent >= kLinkBusyMax + patience) {
    return Loss{silence + ", though its connection is alive", /*busy=*/true};
  }
  if (silent >= kLinkSilentMax || link.wants_image || stalled < kLinkStalledMax + patience) return std::nullopt;
  return Loss{
      absl::StrCat("it answers, but has not kept anything of this partition for ", absl::ToInt64Seconds(stalled), " s"),
      /*busy=*/true};
}

}  // namespace cairn
