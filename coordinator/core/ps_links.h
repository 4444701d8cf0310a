// PsLinks: pairs of ps of which one does not get its updates to the other. While a pair is cut, the one is not made a
// backup of the other's primaries.
//
// A pair is cut for a time that doubles with every loss; then the backup is tried as a copy that has to catch up, which
// costs no generation unless it does catch up and is lost again. So a link that is down, or that flaps, raises a
// generation at most once in that time. To a ps that is only busy the time stays the same: it is over soon, and no
// fault of the network.
//
// Not thread-safe; one core owns it. Invariants:
//   1. A pair counts in both directions: the network between two machines is one.
//   2. It is bounded: a pair without a loss for kForgottenAfter is forgotten, as are those of a ps that is restarted
//      (at another address perhaps, or over another network).
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
  // The primary's ps says that nothing gets across. What is to be logged; none: it is cut already, another job said so.
  std::optional<std::string> NoteLoss(const NodeName& primary, const NodeName& backup, const LinkLoss& loss,
                                      absl::Time now);
  // A backup has caught up. The times stay: it may be lost again soon.
  void NoteReached(const NodeName& primary, const NodeName& backup);
  bool Cut(const NodeName& a, const NodeName& b, absl::Time now) const;

  void ForgetPs(const NodeName& ps);
  void ForgetOld(absl::Time now);

  // For the user, of the pairs for which a partition of the job lacks a backup. there: a ps is connected; of one that
  // is gone other texts speak.
  std::string Text(const v1::JobStatus& job, const std::function<bool(const NodeName&)>& there) const;

 private:
  struct Link {
    absl::Time until = absl::InfinitePast();  // not tried again before
    absl::Time seen;                          // the last loss
    int losses = 0;
    NodeName primary, backup;  // at the last loss
    LinkLoss loss;
    bool over = false;  // something got across since
  };

  std::map<std::pair<NodeName, NodeName>, Link> links_;  // by both ends, in order of name
};

}  // namespace cairn
