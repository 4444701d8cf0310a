// What a job's callbacks decide at the end of an epoch, with the semantics of Keras 3.
//
// Pure functions; any thread. A callback keeps its state between epochs in a StoredCallback:
//   early_stopping          best: the best figure; best_epoch: its epoch + 1 (0: none yet); wait: epochs since
//   reduce_lr_on_plateau    best, wait, cooldown: remaining epochs of the cooldown
//   model_checkpoint        best
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cairn/v1/job.pb.h"
#include "cairn/v1/job_status.pb.h"
#include "cairn/v1/storage.pb.h"

namespace cairn {

inline constexpr char kStopNote[] = "; the job ends";  // the suffix of the note of a callback that stops the job

struct EpochDecision {
  bool stop = false;                   // the job ends with this epoch
  bool failed = false;                 // ... as FAILED: its weights are useless
  std::string reason;                  // with stop
  std::optional<float> learning_rate;  // of the next epoch; nullopt: unchanged
  std::vector<std::string> saves;      // model files to write with the weights at the epoch's end
  std::vector<v1::CallbackNote> notes;
};

// status.epochs(epoch): its complete figures. learning_rate: of its last step. states: by callback, in the order of
// JobSpec.callbacks; resized to match and updated. Every callback is asked, even after one that stops the job.
EpochDecision DecideEpoch(const v1::JobStatus& status, int epoch, float learning_rate,
                          google::protobuf::RepeatedPtrField<v1::StoredCallback>* states);

// Model files to make from the checkpoint of this step (model_checkpoint with a save_freq in steps).
std::vector<std::string> SavesAtStep(const v1::JobStatus& status, int64_t step);

// The epoch whose weights the job ends with (early_stopping with restore_best_weights); -1: no epoch was seen yet, or
// the job has no such callback.
int BestEpoch(const v1::JobSpec& spec, const google::protobuf::RepeatedPtrField<v1::StoredCallback>& states);

}  // namespace cairn
