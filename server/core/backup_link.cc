#include "server/core/backup_link.h"

#include <algorithm>

namespace cairn {

absl::Time BackupLink::wake_at() const {
  const bool retries = stage_ == Stage::kNeedsImage || stage_ == Stage::kRefused;
  return retries && unanswered_ == 0 ? retry_at_ : absl::InfiniteFuture();
}

void BackupLink::Assign(const v1::BackupRoute& route, bool newer, bool dropped) {
  route_ = route;
  if (!newer) {
    in_sync_ = in_sync_ || route.in_sync();
    return;
  }
  in_sync_ = route.in_sync();
  reported_ = false;
  if (stage_ != Stage::kFollowing && stage_ != Stage::kRefused) joined_ = false;
  if (dropped && !in_sync_ && stage_ != Stage::kDown) {
    unconfirmed_.End();
    NeedImage(absl::InfinitePast());
  }
  retry_at_ = absl::InfinitePast();  // it was rejected for the old generation
  retry_ = kLinkRetryMin;
  watch_.Restart();
}

void BackupLink::Up(uint64_t epoch) {
  Down();
  epoch_ = epoch;
  stage_ = Stage::kNeedsImage;
  retry_at_ = absl::InfinitePast();
  retry_ = kLinkRetryMin;
}

void BackupLink::Down() {
  unconfirmed_.Begin(0);
  if (stage_ != Stage::kDown) watch_.Tried();
  stage_ = Stage::kDown;
  confirmed_image_ = joined_ = false;
  unanswered_ = 0;
}

void BackupLink::NeedImage(absl::Time retry_at) {
  stage_ = Stage::kNeedsImage;
  confirmed_image_ = joined_ = false;
  retry_at_ = retry_at;
}

void BackupLink::ImageSent(uint64_t request_id, Generation generation, uint64_t version, size_t bytes) {
  unconfirmed_.Begin(request_id);
  unconfirmed_.Add({request_id, generation, version, 0});
  watch_.ImageSent();
  image_bytes_ = bytes;
  stage_ = Stage::kImage;
  confirmed_image_ = joined_ = false;
  ++unanswered_;
}

void BackupLink::BeginResend(uint64_t next_request_id) {
  unconfirmed_.Begin(next_request_id);
  stage_ = Stage::kFollowing;
}

void BackupLink::UpdateSent(uint64_t request_id, Generation generation, uint64_t version, size_t bytes) {
  unconfirmed_.Add({request_id, generation, version, bytes});
  ++unanswered_;
  watch_.Tried();
}

void BackupLink::Retry(absl::Time now) {
  retry_at_ = now + retry_;
  retry_ = std::min(2 * retry_, kLinkRetryMax);
}

BackupLink::Verdict BackupLink::Answer(const Frame& answer, Generation mine, uint64_t next_request_id, absl::Time now) {
  if (stage_ == Stage::kDown) return Verdict::kNothing;
  if (unanswered_ > 0) --unanswered_;
  watch_.Answered(now);
  const std::optional<UnconfirmedUpdates::Sent> sent = unconfirmed_.Find(answer.request_id);
  if (!sent) return Verdict::kNothing;

  if (answer.kind == v1::ExchangeFrame::ACK) {
    if (stage_ == Stage::kImage) {
      if (!unconfirmed_.IsFirst(answer.request_id)) return Verdict::kNothing;  // answers before the image do not count
      stage_ = Stage::kFollowing;
      following_since_ = now;
      confirmed_image_ = true;
      acked_ = sent->version;
    } else {
      acked_ = std::max(acked_, sent->version);
    }
    retry_ = kLinkRetryMin;
    watch_.Confirmed(now);
    unconfirmed_.Confirm(answer.request_id);
    return Verdict::kConfirmed;
  }

  // It was rejected because of its generation. If this side has reached the backup's generation meanwhile, it is resent
  // at once.
  const bool stale = absl::IsFailedPrecondition(answer.status) && answer.generation > sent->generation;
  const bool fenced = stale && answer.generation > mine;
  const bool passes = stale || absl::IsUnavailable(answer.status) || absl::IsResourceExhausted(answer.status);
  unconfirmed_.Begin(next_request_id);
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
  watch_.Watch(now, /*idle=*/stage_ == Stage::kFollowing && unconfirmed_.empty());
}

std::optional<BackupLink::Loss> BackupLink::Lost(absl::Time now, const PeerState& peer) const {
  LinkWatch::Link link;
  link.has_stream = stage_ != Stage::kDown;
  link.wants_image = stage_ == Stage::kNeedsImage;
  link.unconfirmed_bytes = static_cast<double>(unconfirmed_.bytes());
  // Up to kBackupImagesMax images may be in flight, this one being the last.
  if (stage_ == Stage::kImage) link.unconfirmed_bytes += static_cast<double>(kBackupImagesMax * image_bytes_);
  return watch_.Lost(now, link, peer);
}

bool BackupLink::CatchUp(uint64_t applied, absl::Time now) {
  if (stage_ != Stage::kFollowing) return false;
  if (acked_ + kLinkLagToJoin > applied || now - following_since_ >= kLinkJoinAfter) joined_ = true;
  if (!joined_ || acked_ < applied || in_sync_ || reported_) return false;
  reported_ = true;
  return true;
}

}  // namespace cairn
