// What goes wrong in a run. Each seed draws which kinds of fault it has and how many; some seeds have none, some only
// one kind.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/sim/rng.h"

namespace cairn::sim {

enum class Fault {
  kWorkerKilled,       // and started again, mostly
  kPsKilled,           // and started again on its disk
  kPsPowerLoss,        // the same, and what was not synced is gone
  kCoordinatorKilled,  // and started again
  kSessionBroken,      // both processes live on
  kStreamsBroken,      // of a worker to all ps
  kCut,                // two nodes, both directions
  kCutOneWay,
  kIsolated,    // one node from all others, one way or both
  kStandstill,  // a process stops for a while and goes on
  kClockJump,   // a node's clock leaps forward
  kDrain,       // a user wishes a ps empty; sometimes takes it back
  kPsGone,      // a ps dies for good
  kPsJoins,     // a ps that was not there before
  kDiskFails,   // a ps' store fails to write, for a while
  kDiskLost,    // one or all ps come back with an empty disk
  kAllLost,     // every process and every disk but the checkpoints; the user submits the job once more, to be resumed
  kCheckpointDamaged,  // one of several
  kCheckpointDiskFull,
  kCount,
};
const char* Name(Fault fault);

struct FaultPlan {
  std::vector<Fault> kinds;  // that this run may have
  int count = 0;
  absl::Duration horizon;  // within which they begin

  static FaultPlan Random(Rng& rng);
  bool Has(Fault fault) const;
  std::string Text() const;
};

}  // namespace cairn::sim
