// BackupLink: a primary's view of one backup: what it has confirmed, and whether it is required for acknowledgements.
//
// Not thread-safe; part of PartitionCore. A stream to the backup is FIFO. `epoch` identifies it, so that answers on an
// earlier stream are not attributed to the present one. Stages:
//
//   kDown        no stream
//   kNeedsImage  a stream, on which the backup has nothing yet (or fell out of step): it starts with an image
//   kImage       the image and every update after it are sent; the backup has not confirmed the image
//   kFollowing   the image is confirmed: updates are confirmed one by one
//   kRefused     it was following, and refused an update for a temporary reason (one side does not know of the other's
//                generation yet): unconfirmed updates are sent again later, without an image
//
// Invariants:
//   1. acked() counts only confirmations of the present attempt; an attempt begins with each image and each resend.
//   2. required(): the primary acknowledges nothing that the link has not confirmed. Every backup that the coordinator
//      may promote is required: those named in sync, and those reported as caught up in this generation.
//   3. A link is reported only when it has confirmed everything that the primary has applied.
//   4. A link that is not required holds at most kLinkBytesMax(image) of unconfirmed updates; beyond that it starts
//      again with an image, or becomes required if it has confirmed its image.
//   5. A link over which nothing gets through is lost after a bounded time (LinkWatch). The loss changes nothing here:
//      a required backup stays required until the coordinator has removed it.
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
  // Whether updates are sent to the backup as they are accepted.
  bool streaming() const { return stage_ == Stage::kImage || stage_ == Stage::kFollowing; }
  bool wants_image(absl::Time now) const {
    return stage_ == Stage::kNeedsImage && unanswered_ == 0 && now >= retry_at_;
  }
  bool wants_resend(absl::Time now) const { return stage_ == Stage::kRefused && unanswered_ == 0 && now >= retry_at_; }
  using Loss = LinkWatch::Loss;
  std::optional<Loss> Lost(absl::Time now, const PeerState& peer) const;
  // Call after every event: the clock does not run while there is nothing to confirm.
  void Watch(absl::Time now);
  // This process was suspended for this long.
  void Paused(absl::Duration gap) { watch_.Paused(gap); }

  // When the next retry is due; InfiniteFuture: none.
  absl::Time wake_at() const;

  // The coordinator's assignment. `newer`: of a higher generation than the previous one. `dropped`: a copy that is not
  // in sync may have been dropped since, so it begins with an image, whatever it has confirmed before.
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
  // An answer on the present stream. `next_request_id`: answers to lower ids belong to this attempt or earlier ones.
  Verdict Answer(const Frame& answer, Generation mine, uint64_t next_request_id, absl::Time now);
  // `applied`: the primary's version. True: the backup has just caught up and is to be reported.
  bool CatchUp(uint64_t applied, absl::Time now);
  // Handles unconfirmed updates that take up too much memory (invariant 4).
  void Overflow(absl::Time now);

 private:
  void Retry(absl::Time now);

  v1::BackupRoute route_;
  bool in_sync_ = false;   // according to the coordinator
  bool reported_ = false;  // in this generation: the coordinator may name it in sync at any moment
  bool joined_ = false;    // close enough that the primary waits for it
  Stage stage_ = Stage::kDown;
  uint64_t epoch_ = 0;
  bool confirmed_image_ = false;  // in this attempt, or in the one that it resends
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
