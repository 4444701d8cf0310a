// Drains: nodes that must have no work and whose work moves elsewhere, because a user drained them or because they
// reported a fault.
//
// Not thread-safe; one core owns it. Invariant: a ps that holds partitions is drained only where another ps can take
// them.
#pragma once

#include <string>

#include "coordinator/core/component.h"
#include "coordinator/core/crash_loops.h"

namespace cairn {

class Drains : Component {
 public:
  Drains(Ground& ground, CrashLoops& crash_loops) : Component(ground), crash_loops_(crash_loops) {}

  void OnDrain(const DrainNode& event);
  // A ps reports that its store failed, or a worker that its device is lost: it gets no new work, and its present work
  // moves elsewhere as if it were drained. Empty: the node is healthy.
  void NoteFault(ClusterNode& node, const std::string& fault);

 private:
  void TellDrain(const ClusterNode& node);

  CrashLoops& crash_loops_;
};

}  // namespace cairn
