// Checks JobSpec.callbacks, and says what their fields mean. Used by the code that submits jobs, takes decisions and
// writes files.
//
// Pure functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "cairn/v1/callback.pb.h"
#include "cairn/v1/job.pb.h"
#include "cairn/v1/job_status.pb.h"
#include "common/base/status.h"

namespace cairn {

// Fills in Keras' defaults, and `checkpoints` where a callback needs them. The model, loss, metrics and optimizer must
// be checked before, the checkpoints after. Idempotent. Errors: INVALID_ARGUMENT,
// `callbacks[0].early_stopping.patience: -1 is negative; use 0 or more`.
absl::Status CheckCallbacks(v1::JobSpec* spec, std::vector<std::string>* warnings);
// Checks what depends on the data too.
absl::Status CheckCallbacksAgainstData(const v1::JobSpec& spec, const v1::DataInfo& data);

// Whether the replicas wait at the end of each epoch for the coordinator's decision.
bool WaitsAtEpochs(const v1::JobSpec& spec);
// Whether they also wait for the checkpoint at the epoch's end.
bool NeedsEpochCheckpoints(const v1::JobSpec& spec);
// The early_stopping callback with restore_best_weights; null if there is none.
const v1::EarlyStopping* RestoresBest(const v1::JobSpec& spec);
const v1::BackupAndRestore* BackupOf(const v1::JobSpec& spec);
bool HasReduceRate(const v1::JobSpec& spec);    // reduce_lr_on_plateau
bool WritesSummaries(const v1::JobSpec& spec);  // tensorboard or csv_logger

// Steps between two saves; 0 means after each epoch.
int64_t SaveSteps(const std::string& save_freq);

// Looks a figure up by the name that the user sees, "loss" or "val_accuracy". nullopt: the epoch has no such figure.
// Figures of a validation are available once the validation is complete.
std::optional<double> FigureOf(const v1::JobStatus& status, const v1::EpochResult& epoch, absl::string_view name);

// The callback's field name in Callback: "early_stopping".
std::string CallbackName(const v1::Callback& callback);

}  // namespace cairn
