#include "tests/sim/faults.h"

#include <algorithm>

#include "absl/strings/str_join.h"

namespace cairn::sim {

const char* Name(Fault fault) {
  switch (fault) {
    case Fault::kWorkerKilled: return "worker killed";
    case Fault::kPsKilled: return "ps killed";
    case Fault::kPsPowerLoss: return "power loss";
    case Fault::kCoordinatorKilled: return "coordinator killed";
    case Fault::kSessionBroken: return "session broken";
    case Fault::kStreamsBroken: return "streams broken";
    case Fault::kCut: return "cut";
    case Fault::kCutOneWay: return "one-way cut";
    case Fault::kIsolated: return "isolated";
    case Fault::kStandstill: return "standstill";
    case Fault::kClockJump: return "clock jump";
    case Fault::kDrain: return "drain";
    case Fault::kPsGone: return "ps gone";
    case Fault::kPsJoins: return "ps joins";
    case Fault::kDiskFails: return "disk fails";
    case Fault::kDiskLost: return "disk lost";
    case Fault::kAllLost: return "all lost";
    case Fault::kCheckpointDamaged: return "checkpoint damaged";
    case Fault::kCheckpointDiskFull: return "no room for checkpoints";
    case Fault::kCount: break;
  }
  return "?";
}

FaultPlan FaultPlan::Random(Rng& rng) {
  FaultPlan plan;
  plan.count = static_cast<int>(rng.Between(0, 14));
  plan.horizon = absl::Seconds(rng.Between(1, 8));
  const double each = rng.Chance(0.3) ? 1.0 : rng.Chance(0.5) ? 0.5 : 0.2;
  for (int f = 0; f < static_cast<int>(Fault::kCount); ++f) {
    if (rng.Chance(each)) plan.kinds.push_back(static_cast<Fault>(f));
  }
  if (plan.kinds.empty()) plan.kinds.push_back(static_cast<Fault>(rng.Between(0, static_cast<int>(Fault::kCount) - 1)));
  return plan;
}

bool FaultPlan::Has(Fault fault) const { return std::find(kinds.begin(), kinds.end(), fault) != kinds.end(); }

std::string FaultPlan::Text() const {
  return absl::StrJoin(kinds, ", ", [](std::string* out, Fault f) { out->append(Name(f)); });
}

}  // namespace cairn::sim
