// LinkWatch: whether a link over which nothing gets through is lost.
//
// Not thread-safe; part of BackupLink. Three clocks: one since the ps last answered anything at all, so that a copy
// that waits for its turn behind others is not taken for lost; a longer one where it does not answer, but its
// connection lives: it is busy; and the longest for a single attempt that is not confirmed while others are, which is
// of a busy one, too. Invariants:
//   1. The clocks start with the first Watch after Restart, and stand while there is nothing to confirm.
//   2. A link that only waits for its turn to send an image is not lost.
//   3. The bounds grow with the bytes that are not confirmed, at kLinkBytesPerSecond.
#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"

namespace cairn {

// The ps of a backup, as the driver sees it.
struct PeerState {
  absl::Time heard = absl::InfinitePast();  // when it last answered anything, of whatever partition
  bool connected = false;                   // PsConnection::connected
};

class LinkWatch {
 public:
  // Why nothing gets through, where that has lasted too long.
  struct Loss {
    std::string why;
    bool busy = false;  // v1::BackupReport.busy
  };
  // What the link is at.
  struct Link {
    bool has_stream = false;
    bool wants_image = false;      // and has not sent it
    double unconfirmed_bytes = 0;  // those of images before its own included
  };

  void Restart();  // what was before does not count: another generation
  void Tried() { tried_ = true; }
  void ImageSent();
  void Answered(absl::Time now) { answered_at_ = now; }
  void Confirmed(absl::Time now);
  // After every event. idle: there is nothing to confirm.
  void Watch(absl::Time now, bool idle);
  // This process was suspended for this long.
  void Paused(absl::Duration gap);

  std::optional<Loss> Lost(absl::Time now, const Link& link, const PeerState& peer) const;

 private:
  // InfinitePast: with the next Watch.
  absl::Time progress_at_ = absl::InfinitePast();  // confirmed something, or had nothing to confirm
  absl::Time attempt_at_ = absl::InfinitePast();   // what is not confirmed began to be
  absl::Time answered_at_ = absl::InfinitePast();  // anything, of this partition
  bool tried_ = false;                             // something was sent, or the stream broke, since it last confirmed
};

}  // namespace cairn
