#include "server/core/backup_link.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/limits.h"

namespace cairn {

absl::Time BackupLink::wake_at() const {
  const bool retries = stage_ == Stage::kNeedsImage || stage_ == Stage::kRefused;
  return retries && unanswered_ == 0 ? retry_at_ : absl::InfiniteFuture();
}

void BackupLink::Assign(const v1::BackupRoute& route, bool newer, bool missed) {
  route_ = route;
  if (!newer) {
    in_sync_ = in_sync_ || route.in_sync();
    return;
  }
  in_sync_ = route.in_sync();
  reported_ = false;
  if (stage_ != Stage::kFollowing && stage_ != Stage::kRefused) joined_ = false;
  if (missed && !in_sync_ && (stage_ == Stage::kFollowing || stage_ == Stage::kRefused)) {
    EndAttempt(sent_.empty() ? first_request_id_ : sent_.back().request_id + 1);
    NeedImage(absl::InfinitePast());
  }
  retry_at_ = absl::InfinitePast();  // what was refused for the old generation
  retry_ = kLinkRetryMin;
  progress_at_ = attempt_at_ = absl::InfinitePast();
  tried_ = false;
}

void BackupLink::Up(uint64_t epoch) {
  Down();
  epoch_ = epoch;
  stage_ = Stage::kNeedsImage;
  retry_at_ = absl::InfinitePast();
  retry_ = kLinkRetryMin;
}

void BackupLink::Down() {
  EndAttempt(0);
  if (stage_ != Stage::kDown) tried_ = true;
  stage_ = Stage::kDown;
  confirmed_image_ = joined_ = false;
  unanswered_ = 0;
}

void BackupLink::NeedImage(absl::Time retry_at) {
  stage_ = Stage::kNeedsImage;
  confirmed_image_ = joined_ = false;
  retry_at_ = retry_at;
}

void BackupLink::EndAttempt(uint64_t next_request_id) {
  sent_.clear();
  unconfirmed_bytes_ = 0;
  first_request_id_ = next_request_id;
}

void BackupLink::ImageSent(uint64_t request_id, Generation generation, uint64_t version, size_t bytes) {
  EndAttempt(request_id);
  if (!std::exchange(tried_, true)) progress_at_ = absl::InfinitePast();  // the clock starts
  image_bytes_ = bytes;
  attempt_at_ = absl::InfinitePast();
  stage_ = Stage::kImage;
  confirmed_image_ = joined_ = false;
  image_version_ = version;
  sent_.push_back({request_id, generation, version, 0});
  ++unanswered_;
}

void BackupLink::BeginResend(uint64_t next_request_id) {
  EndAttempt(next_request_id);
  stage_ = Stage::kFollowing;
}

void BackupLink::UpdateSent(uint64_t request_id, Generation generation, uint64_t version, size_t bytes) {
  sent_.push_back({request_id, generation, version, bytes});
  unconfirmed_bytes_ += bytes;
  ++unanswered_;
  tried_ = true;
}

void BackupLink::Retry(absl::Time now) {
  retry_at_ = now + retry_;
  retry_ = std::min(2 * retry_, kLinkRetryMax);
}

BackupLink::Verdict BackupLink::Answer(const Frame& answer, Generation mine, uint64_t next_request_id, absl::Time now) {
  if (stage_ == Stage::kDown) return Verdict::kNothing;
  if (unanswered_ > 0) --unanswered_;
  answered_at_ = now;
  if (answer.request_id < first_request_id_) return Verdict::kNothing;
  auto sent =
      std::find_if(sent_.begin(), sent_.end(), [&](const Sent& s) { return s.request_id == answer.request_id; });
  if (sent == sent_.end()) return Verdict::kNothing;

  if (answer.kind == v1::ExchangeFrame::ACK) {
    if (stage_ == Stage::kImage) {
      if (sent != sent_.begin()) return Verdict::kNothing;  // nothing counts before the image
      stage_ = Stage::kFollowing;
      following_since_ = now;
      confirmed_image_ = true;
      acked_ = image_version_;
    } else {
      acked_ = std::max(acked_, sent->version);
    }
    retry_ = kLinkRetryMin;
    progress_at_ = attempt_at_ = now;
    tried_ = false;
    for (auto it = sent_.begin(); it <= sent; ++it) unconfirmed_bytes_ -= it->bytes;
    sent_.erase(sent_.begin(), sent + 1);
    return Verdict::kConfirmed;
  }

  // Refused for its generation; where this side has reached the backup's meanwhile, it is sent again at once.
  const bool stale = absl::IsFailedPrecondition(answer.status) && answer.generation > sent->generation;
  const bool fenced = stale && answer.generation > mine;
  const bool passes = stale || absl::IsUnavailable(answer.status) || absl::IsResourceExhausted(answer.status);
  EndAttempt(next_request_id);
  Retry(now);
  if (passes && stage_ == Stage::kFollowing) {
    stage_ = Stage::kRefused;
  } else {
    NeedImage(retry_at_);
  }
  return fenced ? Verdict::kFenced : Verdict::kNothing;
}

void BackupLink::Overflow(absl::Time now) {
  if (stage_ == Stage::kFollowing) {
    joined_ = true;
  } else {
    NeedImage(now + kLinkRetryMax);
  }
}

void BackupLink::Watch(absl::Time now) {
  const bool idle = stage_ == Stage::kFollowing && sent_.empty();
  if (idle || progress_at_ == absl::InfinitePast()) progress_at_ = now;
  if (idle || attempt_at_ == absl::InfinitePast()) attempt_at_ = now;
}

std::optional<BackupLink::Loss> BackupLink::Lost(absl::Time now, const PeerState& peer) const {
  if (progress_at_ == absl::InfinitePast()) return std::nullopt;
  if (stage_ == Stage::kNeedsImage && !tried_) return std::nullopt;  // waits for its turn
  const absl::Duration stalled = now - attempt_at_;
  const absl::Duration silent = now - std::max({progress_at_, answered_at_, peer.heard});
  const bool alive = peer.connected && stage_ != Stage::kDown;
  // kBackupImagesMax images may be on their way, this one as the last.
  const double bytes = static_cast<double>(unconfirmed_bytes_) +
                       (stage_ == Stage::kImage ? static_cast<double>(kBackupImagesMax * image_bytes_) : 0);
  const absl::Duration patience = absl::Seconds(bytes / kLinkBytesPerSecond);
  const std::string silence = absl::StrCat(stage_ == Stage::kDown ? "no connection for " : "no answer for ",
                                           absl::ToInt64Seconds(silent), " s");
  if (!alive && silent >= kLinkSilentMax + patience) return Loss{silence};
  if (alive && silent >= kLinkBusyMax + patience)
    return Loss{silence + ", though its connection is alive", /*busy=*/true};
  if (silent >= kLinkSilentMax || stage_ == Stage::kNeedsImage || stalled < kLinkStalledMax + patience)
    return std::nullopt;
  return Loss{
      absl::StrCat("it answers, but has not kept anything of this partition for ", absl::ToInt64Seconds(stalled), " s"),
      /*busy=*/true};
}

bool BackupLink::CatchUp(uint64_t applied, absl::Time now) {
  if (stage_ != Stage::kFollowing) return false;
  if (acked_ + kLinkLagToJoin > applied || now - following_since_ >= kLinkJoinAfter) joined_ = true;
  if (!joined_ || acked_ < applied || in_sync_ || reported_) return false;
  reported_ = true;
  return true;
}

}  // namespace cairn
