// CrashLoops: workers whose process ends again and again while a job makes no progress: it may need more memory than
// their machine has. The system kills such a worker before it can report anything, and its supervisor starts it again.
//
// What is counted is stored: the coordinator may share the machine, and end with it.
//
// Not thread-safe; one core owns it.
#pragma once

#include "coordinator/core/component.h"
#include "coordinator/core/copies.h"
#include "coordinator/core/endings.h"

namespace cairn {

class CrashLoops : Component {
 public:
  CrashLoops(const Ground& ground, Endings& endings, const Copies& copies)
      : Component(ground), endings_(endings), copies_(copies) {}

  // `gone`: it was declared dead, and is not counted again when it comes back.
  void NoteEnd(const NodeName& worker, bool gone);
  // The worker is there again. The job continues without it where others can work; where nobody else can, it gets its
  // replicas once more.
  void QuarantineCrashLoopingWorker(const ClusterNode& worker);
  // It has lost its device and ends its process; its supervisor is to start it again soon. Jobs continue without it;
  // one that nobody else can compute waits for it, unless that was too often at one step.
  void LeaveOutWorkerWithLostDevice(const ClusterNode& worker);

 private:
  Endings& endings_;
  const Copies& copies_;
};

}  // namespace cairn
