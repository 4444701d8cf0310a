// Queries about what a job's callbacks require.
#include <algorithm>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "common/model/callback_check.h"
#include "common/model/job_check.h"
#include "common/model/job_outputs.h"

namespace cairn {

bool WaitsAtEpochs(const v1::JobSpec& spec) {
  return std::any_of(spec.callbacks().begin(), spec.callbacks().end(), [](const v1::Callback& c) {
    return c.has_early_stopping() || c.has_reduce_lr_on_plateau() || c.has_terminate_on_nan() ||
           (c.has_model_checkpoint() && SaveSteps(c.model_checkpoint().save_freq()) == 0);
  });
}

bool NeedsEpochCheckpoints(const v1::JobSpec& spec) {
  return std::any_of(spec.callbacks().begin(), spec.callbacks().end(), [](const v1::Callback& c) {
    return c.early_stopping().restore_best_weights() ||
           (c.has_model_checkpoint() && SaveSteps(c.model_checkpoint().save_freq()) == 0);
  });
}

const v1::EarlyStopping* RestoresBest(const v1::JobSpec& spec) {
  for (const v1::Callback& c : spec.callbacks()) {
    if (c.early_stopping().restore_best_weights()) return &c.early_stopping();
  }
  return nullptr;
}

const v1::BackupAndRestore* BackupOf(const v1::JobSpec& spec) {
  for (const v1::Callback& c : spec.callbacks()) {
    if (c.has_backup_and_restore()) return &c.backup_and_restore();
  }
  return nullptr;
}

bool HasReduceRate(const v1::JobSpec& spec) {
  return std::any_of(spec.callbacks().begin(), spec.callbacks().end(),
                     [](const v1::Callback& c) { return c.has_reduce_lr_on_plateau(); });
}

bool WritesSummaries(const v1::JobSpec& spec) {
  return std::any_of(spec.callbacks().begin(), spec.callbacks().end(),
                     [](const v1::Callback& c) { return c.has_tensorboard() || c.has_csv_logger(); });
}

std::optional<double> FigureOf(const v1::JobStatus& status, const v1::EpochResult& epoch, absl::string_view name) {
  const bool validation = absl::StartsWith(name, "val_");
  const v1::MetricSums& sums = validation ? epoch.validation() : epoch.train();
  if (sums.examples() == 0 || (validation && sums.examples() < status.data().validation_examples()))
    return std::nullopt;
  const absl::string_view base = absl::StripPrefix(name, "val_");
  if (base == "loss") return sums.loss() / static_cast<double>(sums.examples());
  for (int m = 0; m < FigureCount(status.spec()); ++m) {
    if (MetricName(status.spec(), m) == base) return MetricValue(status.spec(), m, sums);
  }
  return std::nullopt;
}

}  // namespace cairn
