// The check of JobSpec.callbacks, and what their fields mean: shared by those that submit, decide and write.
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

// Fills in Keras' defaults, and `checkpoints` where a callback needs them. The model, loss, metrics and optimizer are
// checked before, the checkpoints after. Twice does what once does. Errors: INVALID_ARGUMENT,
// `callbacks[0].early_stopping.patience: -1 is negative; use 0 or more`.
absl::Status CheckCallbacks(v1::JobSpec* spec, std::vector<std::string>* warnings);
// What needs the data too.
absl::Status CheckCallbacksAgainstData(const v1::JobSpec& spec, const v1::DataInfo& data);

// Whether the replicas wait at the end of each epoch for what the coordinator decides.
bool WaitsAtEpochs(const v1::JobSpec& spec);
// Whether the wait is also for the checkpoint of the epoch's end.
bool NeedsEpochCheckpoints(const v1::JobSpec& spec);
// early_stopping with restore_best_weights; null: none.
const v1::EarlyStopping* RestoresBest(const v1::JobSpec& spec);
const v1::BackupAndRestore* BackupOf(const v1::JobSpec& spec);
bool WritesSummaries(const v1::JobSpec& spec);  // tensorboard or csv_logger

// Steps between two saves; 0: after epochs.
int64_t SaveSteps(const std::string& save_freq);

// By the name that the user sees, "loss" or "val_accuracy". None: the epoch has no such figure. A validation's figures
// are there when they are whole.
std::optional<double> FigureOf(const v1::JobStatus& status, const v1::EpochResult& epoch, absl::string_view name);

// The field's name in Callback: "early_stopping".
std::string CallbackName(const v1::Callback& callback);

}  // namespace cairn
