#include "coordinator/core/job_progress.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

namespace cairn {
namespace {

// Workers report "finished" after the last validation. Figures that are still missing then were lost with a message,
// and are waited for this long.
constexpr absl::Duration kLastValidationTimeout = absl::Seconds(3);
// Closed epochs for which late validation figures are still accepted.
constexpr int kLateEpochs = 2;

int64_t StepsPerEpoch(const v1::JobStatus& status) { return std::max<int64_t>(1, status.steps_per_epoch()); }

int32_t EpochsOf(const v1::JobStatus& status) {
  const int32_t epochs = std::max(1, status.spec().epochs());
  if (status.total_steps() <= 0) return epochs;
  return static_cast<int32_t>(std::min<int64_t>(epochs, status.total_steps() / StepsPerEpoch(status)));
}

}  // namespace

// Figures of an open epoch start empty: after a restart of the coordinator the workers report them again. A worker that
// was lost in the meantime took its replicas' validation along; if these had finished, no other worker would compute it
// again.
JobProgress::JobProgress(const v1::JobStatus& status, std::vector<int64_t> replica_step, std::vector<bool> finished,
                         absl::Time now)
    : epochs_(EpochsOf(status)),
      steps_per_epoch_(StepsPerEpoch(status)),
      gated_(status.epochs_open() > 0),
      replicas_(status, std::move(replica_step),
                status.epochs_size() < epochs_ ? std::vector<bool>() : std::move(finished), now),
      figures_(status),
      validations_(status),
      times_(steps_per_epoch_, now),
      last_report_(now) {}

void JobProgress::GoesOn(absl::Time now, std::optional<absl::Time> epoch_start) {
  replicas_.GoesOn();
  times_.SetStart(epoch_start ? std::optional(std::min(*epoch_start, now)) : std::nullopt);
}

void JobProgress::EndAfter(int32_t epochs) {
  epochs_ = std::min(epochs_, epochs);
  replicas_.EndAfter(epochs * steps_per_epoch_);
}

// ---- reports ----

bool JobProgress::WantsFigures(absl::Time now, const v1::JobStatus& status) const {
  if (!figures_.MayAsk(now)) return false;
  const int epoch = status.epochs_size();
  const absl::Time passed_at = times_.passed_at(epoch);
  return epoch < epochs_ && passed_at <= now && figures_.WaitsFor(epoch, passed_at);
}

absl::StatusOr<bool> JobProgress::Count(const v1::ReplicaReport& report, v1::JobStatus& status, absl::Time now) {
  const int32_t r = report.replica();
  const int64_t total_steps = replicas_.total_steps();
  if (r < 0 || r >= replicas_.count()) {
    return absl::InvalidArgumentError(absl::StrFormat("replica %d of a job with %d", r, replicas_.count()));
  }
  if (report.has_validation() && (report.validation_epoch() < 0 || report.validation_epoch() >= epochs_)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("validation of epoch %d of %d", report.validation_epoch(), epochs_));
  }
  bool counted = false;
  if (report.last_step() != 0 || (!report.has_validation() && !report.finished())) {
    if (report.last_step() < 0 || report.last_step() >= total_steps) {
      return absl::InvalidArgumentError(absl::StrFormat("step %d of a job with %d", report.last_step(), total_steps));
    }
    counted = replicas_.Report(r, report.last_step(), now);
  }
  if (report.validation_step() < 0 || report.validation_step() > total_steps) {
    return absl::InvalidArgumentError(
        absl::StrFormat("validation after step %d of %d", report.validation_step(), total_steps));
  }
  if (report.has_validation() && report.validation_step() > 0) {
    counted |= validations_.AddOfStep(report, status);
  } else if (report.has_validation()) {
    CountValidation(report, status, now);
    counted = true;
  }
  if (report.finished()) counted |= replicas_.Finish(r);
  if (counted) last_report_ = now;
  return counted;
}

void JobProgress::CountValidation(const v1::ReplicaReport& report, v1::JobStatus& status, absl::Time now) {
  const int epoch = report.validation_epoch();
  if (epoch < status.epochs_size() - kLateEpochs) return;
  const v1::MetricSums* sums = validations_.Add(report, now);
  // Late figures of a closed epoch. After a restart of the coordinator they are sent again: the stored figures are kept
  // until there are more.
  if (sums == nullptr || epoch >= status.epochs_size()) return;
  v1::MetricSums& closed = *status.mutable_epochs(epoch)->mutable_validation();
  if (sums->examples() > closed.examples()) closed = *sums;
}

void JobProgress::RollBack(int64_t step, absl::Time now) {
  figures_.Forget();
  if (step >= replicas_.total_steps()) return;
  times_.RollBack(step);
  replicas_.RollBack(step, now);
}

// ---- epochs ----

bool JobProgress::AwaitsValidation(int epoch, const v1::JobStatus& status) const {
  if (epoch < status.epochs_size() - kLateEpochs || !validations_.Expected(epoch)) return false;
  if (epoch >= status.epochs_size()) return true;
  return status.epochs(epoch).validation().examples() < static_cast<uint64_t>(validations_.examples());
}

int JobProgress::CloseEpochs(absl::Time now, absl::Duration grace, v1::JobStatus& status) {
  const int64_t reached = step();
  times_.Pass(status.epochs_size(), epochs_, reached, now);
  int closed = 0;
  while (status.epochs_size() < epochs_) {
    const int epoch = status.epochs_size();
    if (reached < (epoch + 1) * steps_per_epoch_) break;
    if (figures_.WaitsFor(epoch, times_.passed_at(epoch))) break;
    if (!validations_.Complete(epoch) && (gated_ || now - times_.moved_on_at(epoch) < grace)) break;
    Append(epoch, now, status);
    ++closed;
  }
  return closed;
}

void JobProgress::Append(int epoch, absl::Time now, v1::JobStatus& status) {
  v1::EpochResult& result = *status.add_epochs();
  result.set_epoch(epoch);
  if (const v1::EpochFigures* figures = figures_.Of(epoch)) {
    *result.mutable_train() = figures->train();
    result.set_staleness_mean(StalenessMean(*figures));
    result.set_staleness_max(figures->staleness_max());
  }
  *result.mutable_validation() = validations_.sums(epoch);
  const std::optional<double> seconds = times_.Close(epoch, validations_.complete_since(epoch), now);
  if (seconds) result.set_seconds(*seconds);
  // Of an epoch that was gone on with in its midst, the steps before the checkpoint took no time here.
  const int64_t restored = status.restored_step();
  const int64_t before = restored / steps_per_epoch_ == epoch ? restored % steps_per_epoch_ : 0;
  const double share = static_cast<double>(steps_per_epoch_ - before) / static_cast<double>(steps_per_epoch_);
  const double examples = static_cast<double>(result.train().examples()) * share;
  if (result.seconds() > 0) result.set_images_per_second(examples / result.seconds());
  times_.ForgetBefore(epoch + 1 - kLateEpochs);
  validations_.ForgetBefore(epoch + 1 - kLateEpochs);
}

bool JobProgress::Done(absl::Time now, const v1::JobStatus& status) const {
  if (!replicas_.all_finished()) return false;
  if (status.epochs_size() == epochs_) return true;
  for (int epoch = status.epochs_size(); epoch < epochs_; ++epoch) {
    if (!times_.Knows(epoch) || figures_.WaitsFor(epoch, times_.passed_at(epoch))) return false;
  }
  return now - last_report_ >= kLastValidationTimeout;
}

void JobProgress::CloseAll(absl::Time now, v1::JobStatus& status) {
  while (status.epochs_size() < epochs_) Append(status.epochs_size(), now, status);
}

// ---- queries ----

void JobProgress::Fill(absl::Time now, v1::JobStatus& status) const {
  const int64_t reached = step();
  status.set_step(reached);
  const int epoch = static_cast<int>(std::min<int64_t>(reached / steps_per_epoch_, epochs_ - 1));
  status.set_epoch(epoch);
  status.clear_epoch_sums();
  status.set_staleness_mean(0);
  status.set_staleness_max(0);
  if (const v1::EpochFigures* figures = figures_.Of(epoch)) {
    *status.mutable_epoch_sums() = figures->train();
    status.set_staleness_mean(StalenessMean(*figures));
    status.set_staleness_max(figures->staleness_max());
  }
  status.clear_images_per_second();
  if (const std::optional<double> rate = replicas_.ExamplesPerSecond(now)) status.set_images_per_second(*rate);
}

}  // namespace cairn
