// CrashLoops: workers whose process ends again and again while a job makes no progress. The job may need more memory
// than the machine has: the system kills the worker before it can report, and its supervisor starts it again.
//
// The counts are stored, since the coordinator may share the machine and be killed with the worker.
//
// Not thread-safe; one core owns it.
#pragma once

#include "coordinator/core/component.h"
#include "coordinator/core/copies.h"
#include "coordinator/core/endings.h"

namespace cairn {

class CrashLoops : Component {
 public:
  CrashLoops(Ground& ground, Endings& endings, const Copies& copies)
      : Component(ground), endings_(endings), copies_(copies) {}

  // `gone`: the worker was declared dead; it is not counted again when it comes back.
  void NoteEnd(const NodeName& worker, bool gone);
  // The worker is back. Jobs continue without it where others can compute them; a job that no other worker can compute
  // gives it its replicas once more.
  void QuarantineCrashLoopingWorker(const ClusterNode& worker);
  // Nodes came or went. Where no other worker can compute a job any more, those that were left out for their crashes
  // are tried once more.
  void Note(SlotsChanged);
  // The worker lost its device and is about to end; its supervisor should restart it. Jobs continue without it; a job
  // that no other worker can compute waits for it, unless this happened too often at one step.
  void LeaveOutWorkerWithLostDevice(const ClusterNode& worker);

 private:
  Endings& endings_;
  const Copies& copies_;
};

}  // namespace cairn
