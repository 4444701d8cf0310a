// Epochs: the figures of the training, and what callbacks decide at the end of epochs. Their files: model_files.h.
//
// A job that waits at the end of epochs (WaitsAtEpochs) has epochs_open > 0: its replicas begin no step of a later
// epoch. When all figures of an epoch are in, and the checkpoint of its end where one is needed, the callbacks decide
// (callbacks.h). The decision is stored, then sent. It holds whatever happens to the partitions later: an epoch is
// decided once, though its steps may be done again.
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
  Epochs(const Ground& ground, Endings& endings, Assignments& assignments, ModelFiles& files)
      : Component(ground), endings_(endings), assignments_(assignments), files_(files) {}

  // A job's first partition keeps the figures (server/core/training_figures.h) until the results of their epochs
  // are stored here.
  void OnFigures(const ClusterNode& node, const v1::FiguresReport& report);
  // The primary drops what is stored, and reports the rest at once.
  void SendFiguresStored(Job& job);

  void DecideEpochs(Job& job);
  // A chief may be at the last checkpoint though all replicas are reported as done: it was named, or left with some of
  // its replicas, when these had been done already.
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
