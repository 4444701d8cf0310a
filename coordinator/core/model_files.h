// ModelFiles: the files of callbacks: model files and summaries.
//
// One worker at a time is asked to write them, the chief if it is there, until one has answered. A job does not end
// before they are written, but waits no longer than kEndTimeout, or ten seconds after a worker reported that it cannot
// write them: other jobs may wait for its slots.
//
// Not thread-safe; one core owns it.
#pragma once

#include <cstdint>
#include <string>

#include "coordinator/core/component.h"

namespace cairn {

class ModelFiles : Component {
 public:
  explicit ModelFiles(Ground& ground) : Component(ground) {}

  // ---- model files ----
  void AddSave(Job& job, int64_t step, std::string path);
  // A checkpoint was written: requests the model files of its step.
  void SaveAtStep(Job& job, int64_t step);
  // Whether the next epoch has to wait for a model file.
  bool SavesHoldUp(Job& job) const;
  void SendSaves(Job& job);
  void OnModelSaved(const ClusterNode& node, const v1::ModelSaved& saved);

  // ---- summaries ----
  // Takes figures of the running epoch from time to time, for TensorBoard's update_freq.
  void NoteStepFigures(Job& job);
  void SendSummaries(Job& job);
  void OnSummariesWritten(const ClusterNode& node, const v1::SummariesWritten& written);

  // ---- both ----
  void Tick(Job& job);
  // A worker is dead, or its session broke: requests to it may be lost.
  void ReleaseWorker(const NodeName& worker);
  // All steps are done. Returns whether all files are written too, or their deadline has passed.
  bool AllWritten(Job& job);
};

}  // namespace cairn
