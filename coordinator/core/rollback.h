// Rollback: jobs whose copies were recovered from disks that may be behind: to which version they go back.
//
// Not thread-safe; one core owns it.
#pragma once

#include "coordinator/core/component.h"
#include "coordinator/core/endings.h"
#include "coordinator/core/restores.h"

namespace cairn {

class Rollback : Component {
 public:
  Rollback(const Ground& ground, Endings& endings, Restores& restores)
      : Component(ground), endings_(endings), restores_(restores) {}

  // Called when all primaries of a synchronous job have said at which version they are. True: they are not at one that
  // the job can go on from, and a new generation takes them to one, or the job failed.
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
