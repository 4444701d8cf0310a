// Drains: nodes that must have no work and whose work moves elsewhere: drained by a user, or reported broken by
// themselves.
//
// Not thread-safe; one core owns it. Invariant: a ps that holds partitions is drained only where another one can take
// them.
#pragma once

#include <string>

#include "coordinator/core/component.h"
#include "coordinator/core/crash_loops.h"

namespace cairn {

class Drains : Component {
 public:
  Drains(const Ground& ground, CrashLoops& crash_loops) : Component(ground), crash_loops_(crash_loops) {}

  void OnDrain(const DrainNode& event);
  // A ps says that its store is useless, a worker that its device is lost: it gets nothing more, and what it has
  // moves elsewhere as if it were drained. Empty: nothing is wrong with it.
  void NoteFault(ClusterNode& node, const std::string& fault);

 private:
  void TellDrain(const ClusterNode& node);

  CrashLoops& crash_loops_;
};

}  // namespace cairn
