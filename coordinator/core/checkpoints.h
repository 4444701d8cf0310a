// Checkpoints: which checkpoints the chief wrote, and which is the best. Jobs that begin from one: restores.h.
//
// Not thread-safe; one core owns it. Invariants:
//   1. A checkpoint's path is computed from the job; the path in a worker's report is ignored.
//   2. Only the chief's reports count; from a former chief, only the report that it wrote a checkpoint.
//   3. A checkpoint counts as compared when the figure of its epoch is known or will not come, and it is not the one
//      that the chief is to keep.
#pragma once

#include <cstdint>

#include "coordinator/core/component.h"
#include "coordinator/core/model_files.h"

namespace cairn {

class Checkpoints : Component {
 public:
  Checkpoints(Ground& ground, ModelFiles& files) : Component(ground), files_(files) {}

  void OnCheckpoint(const ClusterNode& node, const v1::CheckpointReport& report);
  // Tells the chief to keep the checkpoint of the best epoch, where the best has changed, and which others it no longer
  // needs to keep for that reason.
  void ConsiderBest(Job& job);

 private:
  void NoteSetAside(Job& job, const v1::CheckpointReport& report);
  void OnFormerChiefsCheckpoint(Job& job, const ClusterNode& node, const v1::CheckpointReport& report);
  void NoteWritten(Job& job, v1::CheckpointInfo info);
  void Changed(Job& job);
  // The step whose checkpoint the chief is to keep; -1: it has been kept, or there is none.
  int64_t BestOfStopping(const Job& job, double* monitored) const;
  int64_t BestByFigure(const Job& job, bool asked, double* monitored) const;
  bool NoteCompared(Job& job, int64_t to_keep) const;
  const ClusterNode* TrainingChief(const Job& job) const;
  void SendMarkBest(Job& job, const ClusterNode& chief, int64_t step, double monitored);

  ModelFiles& files_;
};

}  // namespace cairn
