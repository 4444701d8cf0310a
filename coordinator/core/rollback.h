// Rollback: decides to which version a job goes back whose copies were recovered from disks that may be behind.
//
// Not thread-safe; one core owns it.
#pragma once

#include "coordinator/core/component.h"
#include "coordinator/core/endings.h"
#include "coordinator/core/restores.h"

namespace cairn {

class Rollback : Component {
 public:
  Rollback(Ground& ground, Endings& endings, Restores& restores)
      : Component(ground), endings_(endings), restores_(restores) {}

  // Called when all primaries of a synchronous job have reported their versions. True: the job cannot continue from
  // these, and a new generation takes the partitions back to a common version, or the job failed.
  bool FallBack(Job& job);
  // The partitions of an asynchronous job may each have lost updates: its replicas, even those that had finished,
  // start over from what the partitions hold. True: a new generation was begun, or the job ended.
  bool GoOnFromWhatIsLeft(Job& job);

 private:
  void BackToRunning(Job& job);

  Endings& endings_;
  Restores& restores_;
};

}  // namespace cairn
