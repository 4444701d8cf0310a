// ModelFiles: files of callbacks: model files and summaries.
//
// They are asked of one worker at a time, the chief where it is there, until one has answered. A job is not over before
// they are written, or kEndTimeout has passed, or ten seconds after a worker said that it cannot write them: others may
// wait for the job's slots.
//
// Not thread-safe; one core owns it.
#pragma once

#include <cstdint>
#include <string>

#include "coordinator/core/component.h"

namespace cairn {

class ModelFiles : Component {
 public:
  explicit ModelFiles(const Ground& ground) : Component(ground) {}

  // ---- model files ----
  void AddSave(Job& job, int64_t step, std::string path);
  // A checkpoint was written: files of its step are due.
  void SaveAtStep(Job& job, int64_t step);
  // Whether the next epoch has to wait for a model file.
  bool SavesHoldUp(Job& job) const;
  void SendSaves(Job& job);
  void OnModelSaved(const ClusterNode& node, const v1::ModelSaved& saved);

  // ---- summaries ----
  // Figures of the running epoch, now and then, for TensorBoard's update_freq.
  void NoteStepFigures(Job& job);
  void SendSummaries(Job& job);
  void OnSummariesWritten(const ClusterNode& node, const v1::SummariesWritten& written);

  // ---- both ----
  void Tick(Job& job);
  // A worker is gone, or its session broke: what it was asked may be lost with it.
  void ReleaseWorker(const NodeName& worker);
  // All steps are done: whether the files are written too, or were waited for long enough.
  bool AllWritten(Job& job);
};

}  // namespace cairn
