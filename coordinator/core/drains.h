// Drains: nodes that are to have no work, and whose work moves away: drained by a user, or failed by their own word.
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
  // A ps says that its store is of no use, a worker that its device is lost: it is given nothing more, and what it has
  // moves away as from one that is drained. Empty: nothing is wrong with it.
  void NoteFault(ClusterNode& node, const std::string& fault);

 private:
  void TellDrain(const ClusterNode& node);

  CrashLoops& crash_loops_;
};

}  // namespace cairn
