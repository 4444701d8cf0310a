// PsLinks: pairs of ps between which updates do not get through. While a pair is cut, neither ps is made a backup of
// the other's primaries.
//
// A pair is cut for a time that doubles with every loss. Then the backup is tried as a copy that has to catch up, which
// costs no generation unless it does catch up and is lost again. So a link that is down or flapping raises a generation
// at most once in that time. For a ps that is only busy the time does not grow: the load soon passes, and the network
// is not at fault.
//
// Not thread-safe; one core owns it. Invariants:
//   1. A pair counts in both directions, since both use the same network.
//   2. Memory is bounded: a pair without a loss for kForgottenAfter is forgotten, and so are all pairs of a ps that
//      restarts (its address or network may have changed).
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "cairn/v1/job_status.pb.h"
#include "common/base/ids.h"

namespace cairn {

struct LinkLoss {
  std::string why;
  bool busy = false;  // v1::BackupReport.busy
};

class PsLinks {
 public:
  // The primary's ps reports that nothing gets through. Returns what to log after its name; nullopt: the pair is cut
  // already.
  std::optional<std::string> NoteLoss(const NodeName& primary, const NodeName& backup, const LinkLoss& loss,
                                      absl::Time now);
  // A backup has caught up. The loss count stays: it may be lost again soon.
  void NoteReached(const NodeName& primary, const NodeName& backup);
  bool Cut(const NodeName& a, const NodeName& b, absl::Time now) const;

  void ForgetPs(const NodeName& ps);
  void ForgetOld(absl::Time now);

  // For the user: the cut pairs that leave a partition of the job without a backup. there: whether a ps is connected;
  // other texts cover ps that are not.
  std::string Text(const v1::JobStatus& job, const std::function<bool(const NodeName&)>& there) const;

 private:
  struct Link {
    absl::Time until = absl::InfinitePast();  // no retry before this time
    absl::Time seen;                          // the last loss
    int losses = 0;
    NodeName primary, backup;  // at the last loss
    LinkLoss loss;
    bool over = false;  // a backup has caught up since
  };

  std::map<std::pair<NodeName, NodeName>, Link> links_;  // by both ends, in order of name
};

}  // namespace cairn
