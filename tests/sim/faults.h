// The faults of a run. Each seed draws which kinds of faults it has and how many; some seeds have none, some only
// one kind.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/sim/rng.h"

namespace cairn::sim {

enum class Fault {
  kWorkerKilled,       // and restarted, mostly
  kPsKilled,           // and restarted on its disk
  kPsPowerLoss,        // the same, and unsynced batches are lost
  kCoordinatorKilled,  // and restarted
  kSessionBroken,      // both processes keep running
  kStreamsBroken,      // a worker's streams to all ps
  kCut,                // two nodes, both directions
  kCutOneWay,
  kIsolated,           // one node from all others, one way or both
  kStandstill,         // a process stops for a while and continues
  kClockJump,          // a node's clock jumps forward
  kDrain,              // a user drains a ps, and sometimes undoes it
  kPsGone,             // a ps dies for good
  kPsJoins,            // a new ps joins
  kDiskFails,          // writes to a ps' store fail for a while
  kDiskLost,           // one or all ps come back with an empty disk
  kAllLost,            // every process and every disk but the checkpoints; the user submits the job again, to resume it
  kCheckpointDamaged,  // one of several
  kCheckpointDiskFull,
  kCount,
};
const char* Name(Fault fault);

struct FaultPlan {
  std::vector<Fault> kinds;  // kinds that this run may have
  int count = 0;
  absl::Duration horizon;  // all faults begin within it

  static FaultPlan Random(Rng& rng);
  bool Has(Fault fault) const;
  std::string Text() const;
};

}  // namespace cairn::sim
