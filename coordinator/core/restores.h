// Restores: jobs whose partitions are filled from a checkpoint before they run: at their start (resume_from,
// initial_weights), at their end (the best epoch's weights), or again when every copy of a partition is lost.
//
// A restore is an attempt of one worker in one generation. When it is done the generation is raised, and with it every
// frame of earlier attempts is fenced; the job runs when all partitions are ready in that one. Anything that raises the
// generation in between starts over.
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
  Restores(const Ground& ground, Endings& endings) : Component(ground), endings_(endings) {}

  // Where all partitions of a job that starts are ready to be filled.
  void TryRestore(Job& job);
  void OnRestored(const ClusterNode& node, const v1::RestoreReply& reply);
  // The worker that restores is gone: another one does it.
  void ReleaseWorker(const NodeName& worker);

  // The weights are lost: the job goes on from a checkpoint; one that had those of its best epoch gets these again.
  // False: there is no checkpoint.
  bool RestoreInstead(Job& job, const std::string& why);
  // early_stopping with restore_best_weights: the partitions are filled from the best epoch's checkpoint. False: the
  // weights are those that the job ends with.
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
