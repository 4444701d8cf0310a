// BackupLink: what a primary knows of one backup: how far it is, and whether anything may be acknowledged without it.
//
// Not thread-safe; part of PartitionCore. A stream to the backup is FIFO; `epoch` names it, so that what an earlier
// stream brings is not taken for the present one's. Stages:
//
//   kDown        no stream
//   kNeedsImage  a stream, on which the backup has nothing yet (or fell out of step): it starts with an image
//   kImage       the image is sent, and every update after it; the backup has not confirmed the image
//   kFollowing   it has: its updates are confirmed one by one
//   kRefused     it was following and refused an update for a reason that passes (it has not heard of the generation,
//                or this side has not): what is not confirmed is sent again later, without an image
//
// Invariants:
//   1. acked() counts confirmations of the present attempt alone; an attempt begins with each image and each resend.
//   2. required(): the primary acknowledges nothing that the link has not confirmed. So is every backup that the
//      coordinator may promote: one named in sync, and one reported as caught up in this generation.
//   3. A link is reported only when it has confirmed everything that the primary has applied.
//   4. A link that is not required holds at most kLinkBytesMax(image) of updates that are not confirmed; beyond, it
//      starts again with an image, or is waited for if it has confirmed that.
//   5. A link over which nothing gets through is lost after a bounded time (LinkWatch). Losing it changes nothing here:
//      a backup that is required stays so until the coordinator has taken it away.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"
#include "common/base/ids.h"
#include "common/tensor/frame.h"
#include "server/core/limits.h"
#include "server/core/link_watch.h"
#include "server/core/unconfirmed_updates.h"

namespace cairn {

class BackupLink {
 public:
  enum class Stage { kDown, kNeedsImage, kImage, kFollowing, kRefused };

  explicit BackupLink(v1::BackupRoute route) : route_(std::move(route)), in_sync_(route_.in_sync()) {}

  const std::string& node() const { return route_.node(); }
  const std::string& address() const { return route_.address(); }
  uint64_t epoch() const { return epoch_; }
  Stage stage() const { return stage_; }
  uint64_t acked() const { return acked_; }  // of a link that confirmed its image
  bool in_sync() const { return in_sync_; }
  bool reported() const { return reported_; }
  bool required() const { return in_sync_ || reported_ || joined_; }
  bool has_confirmed(uint64_t version) const { return confirmed_image_ && acked_ >= version; }
  // Updates are sent to it as they are accepted.
  bool streaming() const { return stage_ == Stage::kImage || stage_ == Stage::kFollowing; }
  bool wants_image(absl::Time now) const {
    return stage_ == Stage::kNeedsImage && unanswered_ == 0 && now >= retry_at_;
  }
  bool wants_resend(absl::Time now) const { return stage_ == Stage::kRefused && unanswered_ == 0 && now >= retry_at_; }
  using Loss = LinkWatch::Loss;
  std::optional<Loss> Lost(absl::Time now, const PeerState& peer) const;
  // After every event: the clock does not run while there is nothing to confirm.
  void Watch(absl::Time now);
  // This process was suspended for this long.
  void Paused(absl::Duration gap) { watch_.Paused(gap); }

  // When something is to be tried again; InfiniteFuture: nothing is.
  absl::Time wake_at() const;

  // The coordinator's word. `newer`: of a higher generation than the one before. `dropped`: a copy that is not in sync
  // may have been dropped since then, so it begins with an image, whatever is still confirmed of the one before.
  void Assign(const v1::BackupRoute& route, bool newer, bool dropped);
  void Up(uint64_t epoch);
  void Down();
  void NeedImage(absl::Time retry_at);

  void ImageSent(uint64_t request_id, Generation generation, uint64_t version, size_t bytes);
  void UpdateSent(uint64_t request_id, Generation generation, uint64_t version, size_t bytes);
  void BeginResend(uint64_t next_request_id);
  size_t unconfirmed_bytes() const { return unconfirmed_.bytes(); }

  enum class Verdict {
    kNothing,
    kConfirmed,
    kFenced,  // the backup is in a higher generation
  };
  // An answer on the present stream. `next_request_id`: answers to smaller ones belong to this attempt or earlier ones.
  Verdict Answer(const Frame& answer, Generation mine, uint64_t next_request_id, absl::Time now);
  // `applied`: the primary's version. True: it has just caught up and is to be reported.
  bool CatchUp(uint64_t applied, absl::Time now);
  // Its updates take up too much memory.
  void Overflow(absl::Time now);

 private:
  void Retry(absl::Time now);

  v1::BackupRoute route_;
  bool in_sync_ = false;   // as the coordinator says
  bool reported_ = false;  // in this generation: the coordinator may say so any moment
  bool joined_ = false;    // close enough to be waited for
  Stage stage_ = Stage::kDown;
  uint64_t epoch_ = 0;
  bool confirmed_image_ = false;  // in this attempt, or the one that it resends
  absl::Time following_since_ = absl::InfiniteFuture();
  uint64_t acked_ = 0;
  UnconfirmedUpdates unconfirmed_;
  uint64_t unanswered_ = 0;  // requests on this stream, of all attempts
  absl::Duration retry_ = kLinkRetryMin;
  absl::Time retry_at_ = absl::InfinitePast();
  LinkWatch watch_;
  size_t image_bytes_ = 0;  // kImage
};

}  // namespace cairn
