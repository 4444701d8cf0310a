// Restores: fills the partitions of a job from a checkpoint: at its start (resume_from, initial_weights), at its end
// (the best epoch's weights), or again when every copy of a partition is lost.
//
// A restore is an attempt of one worker in one generation. When it is done the generation is raised, which fences all
// frames of earlier attempts; the job runs when all partitions are ready in the new one. If anything else raises the
// generation in between, the restore starts over.
//
// Not thread-safe; one core owns it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/core/component.h"
#include "coordinator/core/endings.h"

namespace cairn {

class Restores : Component {
 public:
  Restores(Ground& ground, Endings& endings) : Component(ground), endings_(endings) {}

  // Begins the restore if all partitions of the starting job are ready to be filled.
  void TryRestore(Job& job);
  void OnRestored(const ClusterNode& node, const v1::RestoreReply& reply);
  // If the worker was restoring, another worker takes over.
  void ReleaseWorker(const NodeName& worker);

  // The weights are lost: the job resumes from a checkpoint, or from its best epoch's if it had those weights restored.
  // False: there is no checkpoint.
  bool RestoreInstead(Job& job, const std::string& why);
  // early_stopping with restore_best_weights: fills the partitions from the best epoch's checkpoint. False: nothing to
  // restore, the job ends with its present weights.
  bool RestoreBest(Job& job);

 private:
  void RefreshRestoreFrom(Job& job);
  void RestoreFailed(Job& job, const std::string& why, bool silent);
  bool EndWithoutBest(Job& job, const std::string& why);
  std::optional<int64_t> DropReplacedBest(Job& job, const std::string& path, int64_t step);
  void GoOnFrom(Job& job, const std::string& path, std::vector<int64_t> steps);

  Endings& endings_;
};

}  // namespace cairn
