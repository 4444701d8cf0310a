// Checkpoints: what the chief wrote, and which is the best. Jobs that begin with one: restores.h.
//
// Not thread-safe; one core owns it. Invariants:
//   1. Where a checkpoint lies is computed from the job, whatever a worker says of it.
//   2. The chief alone is believed; of a former one, only that it wrote.
#pragma once

#include <cstdint>

#include "coordinator/core/component.h"
#include "coordinator/core/model_files.h"

namespace cairn {

class Checkpoints : Component {
 public:
  Checkpoints(const Ground& ground, ModelFiles& files) : Component(ground), files_(files) {}

  void OnCheckpoint(const ClusterNode& node, const v1::CheckpointReport& report);
  // Has the chief keep the checkpoint of the best epoch, where that is another one than before.
  void ConsiderBest(Job& job);

 private:
  void OnFormerChiefsCheckpoint(Job& job, const ClusterNode& node, const v1::CheckpointReport& report);
  void NoteWritten(Job& job, v1::CheckpointInfo info);
  void Changed(Job& job);
  void MarkBestEpoch(Job& job);
  void SendMarkBest(Job& job, int64_t step, double monitored);

  ModelFiles& files_;
};

}  // namespace cairn
