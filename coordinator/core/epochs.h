// Epochs: the figures of the training, and what callbacks decide at the end of epochs. Their files: model_files.h.
//
// A job that waits at the end of epochs (WaitsAtEpochs) has epochs_open > 0: its replicas begin no step of a later
// epoch. When all figures of an epoch are in, and its final checkpoint where one is needed, the callbacks decide
// (callbacks.h). The decision is stored, then sent. It stands whatever happens to the partitions later: an epoch is
// decided once, even if its steps are repeated.
//
// Not thread-safe; one core owns it.
#pragma once

#include <string>
#include <vector>

#include "coordinator/core/assignments.h"
#include "coordinator/core/component.h"
#include "coordinator/core/endings.h"
#include "coordinator/core/model_files.h"

namespace cairn {

class Epochs : Component {
 public:
  Epochs(Ground& ground, Endings& endings, Assignments& assignments, ModelFiles& files)
      : Component(ground), endings_(endings), assignments_(assignments), files_(files) {}

  // A job's first partition keeps the figures (server/core/training_figures.h) until the results of their epochs
  // are stored here.
  void OnFigures(const ClusterNode& node, const v1::FiguresReport& report);
  // Tells the primary which figures are stored: it drops them, and reports the rest at once.
  void SendFiguresStored(Job& job);

  void DecideEpochs(Job& job);
  // Whether a chief may still be writing the last checkpoint although all replicas are reported as done: it became the
  // chief, or kept only some of its replicas, after those were done.
  bool LastCheckpointMayCome(const Job& job) const;

 private:
  bool CheckpointMayCome(Job& job, int epoch);
  bool FilesHoldUp(Job& job, int epoch);
  void AddSavesOf(Job& job, int epoch, const std::vector<std::string>& paths);
  void Decide(Job& job, int epoch);

  Endings& endings_;
  Assignments& assignments_;
  ModelFiles& files_;
};

}  // namespace cairn
