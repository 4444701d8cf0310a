// What a job's callbacks decide at the end of an epoch, with the semantics of Keras 3.
//
// Pure functions; any thread. What a callback remembers from epoch to epoch is a StoredCallback:
//   early_stopping          best: the best figure; best_epoch: its epoch + 1 (0: none yet); wait: epochs since
//   reduce_lr_on_plateau    best, wait, cooldown: epochs that are left of it
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

inline constexpr char kStopNote[] = "; the job ends";  // ends the note of a callback that stops it

struct EpochDecision {
  bool stop = false;                   // the job ends with this epoch
  bool failed = false;                 // ... with weights that are useless
  std::string reason;                  // with stop
  std::optional<float> learning_rate;  // of the next epoch; none: as it was
  std::vector<std::string> saves;      // model files to be made of the weights at the epoch's end
  std::vector<v1::CallbackNote> notes;
};

// status.epochs(epoch): its figures, whole. learning_rate: of its last step. states: by callback, in the order of
// JobSpec.callbacks (made as long); changed. Every callback is asked, even after one that stops the job.
EpochDecision DecideEpoch(const v1::JobStatus& status, int epoch, float learning_rate,
                          google::protobuf::RepeatedPtrField<v1::StoredCallback>* states);

// Model files that are to be made of the checkpoint of this step (model_checkpoint with a save_freq in steps).
std::vector<std::string> SavesAtStep(const v1::JobStatus& status, int64_t step);

// The epoch whose weights the job ends with (early_stopping with restore_best_weights); -1: none was seen yet, or there
// is no such callback.
int BestEpoch(const v1::JobSpec& spec, const google::protobuf::RepeatedPtrField<v1::StoredCallback>& states);

}  // namespace cairn
