// Checkpoints: what the chief wrote, and which is the best. Jobs that begin with one: restores.h.
//
// Not thread-safe; one core owns it. Invariants:
//   1. Where a checkpoint lies is computed from the job, whatever a worker says of it.
//   2. The chief alone is believed; of a former one, only that it wrote.
//   3. A checkpoint counts as compared when the figure of its epoch is known, or does not come any more, and it is not
//      the one that the chief is to keep.
#pragma once

#include <cstdint>

#include "coordinator/core/component.h"
#include "coordinator/core/model_files.h"

namespace cairn {

class Checkpoints : Component {
 public:
  Checkpoints(const Ground& ground, ModelFiles& files) : Component(ground), files_(files) {}

  void OnCheckpoint(const ClusterNode& node, const v1::CheckpointReport& report);
  // Has the chief keep the checkpoint of the best epoch, where that is another one than before, and tells it which
  // others need not stay for that.
  void ConsiderBest(Job& job);

 private:
  void OnFormerChiefsCheckpoint(Job& job, const ClusterNode& node, const v1::CheckpointReport& report);
  void NoteWritten(Job& job, v1::CheckpointInfo info);
  void Changed(Job& job);
  // The step that the chief is to keep; -1: it has it, or there is none.
  int64_t BestOfStopping(const Job& job, double* monitored) const;
  int64_t BestByFigure(const Job& job, bool asked, double* monitored) const;
  bool NoteCompared(Job& job, int64_t to_keep) const;
  const ClusterNode* TrainingChief(const Job& job) const;
  void SendMarkBest(Job& job, const ClusterNode& chief, int64_t step, double monitored);

  ModelFiles& files_;
};

}  // namespace cairn
