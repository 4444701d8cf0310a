// LinkWatch: decides when a link over which nothing gets through is lost.
//
// Not thread-safe; part of BackupLink. Three timeouts: one since the ps last answered anything at all, so that a copy
// that waits for its turn behind others is not declared lost; a longer one if the ps does not answer but its connection
// is alive (it is busy); and the longest for an attempt that is not confirmed although the ps answers, which also means
// that it is busy. Invariants:
//   1. The clocks start with the first Watch after Restart, and stop while there is nothing to confirm.
//   2. A link that only waits for its turn to send an image is not lost.
//   3. The timeouts grow with the unconfirmed bytes, at kLinkBytesPerSecond.
#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"

namespace cairn {

// The ps of a backup, as the driver sees it.
struct PeerState {
  absl::Time heard = absl::InfinitePast();  // when it last answered anything, for any partition
  bool connected = false;                   // PsConnection::connected
};

class LinkWatch {
 public:
  // Why the link is lost.
  struct Loss {
    std::string why;
    bool busy = false;  // v1::BackupReport.busy
  };
  // The state of the link.
  struct Link {
    bool has_stream = false;
    bool wants_image = false;      // and has not sent it
    double unconfirmed_bytes = 0;  // including images sent before its own
  };

  void Restart();  // a new generation: earlier times do not count
  void Tried() { tried_ = true; }
  void ImageSent();
  void Answered(absl::Time now) { answered_at_ = now; }
  void Confirmed(absl::Time now);
  // Call after every event. idle: there is nothing to confirm.
  void Watch(absl::Time now, bool idle);
  // This process was suspended for this long.
  void Paused(absl::Duration gap);

  std::optional<Loss> Lost(absl::Time now, const Link& link, const PeerState& peer) const;

 private:
  // InfinitePast: set by the next Watch.
  absl::Time progress_at_ = absl::InfinitePast();  // last confirmed something, or had nothing to confirm
  absl::Time attempt_at_ = absl::InfinitePast();   // the unconfirmed attempt began
  absl::Time answered_at_ = absl::InfinitePast();  // last answered anything for this partition
  bool tried_ = false;                             // something was sent, or the stream broke, since it last confirmed
};

}  // namespace cairn
