#include "coordinator/core/job_progress.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "common/model/fault_check.h"
#include "common/model/step_plan.h"
#include "coordinator/core/job_facts.h"

namespace cairn {
namespace {

// A worker's "finished" that got lost with its session is taken from its heartbeats after this long.
constexpr absl::Duration kFinishedByHeartbeat = absl::Seconds(5);
// Workers say "finished" after the last validation: figures that are not there by then were lost, and are waited for
// this long.
constexpr absl::Duration kLastValidationTimeout = absl::Seconds(3);
// Examples in a step of one replica, in the mean over an epoch: its last batch is short where it goes through the data
// once.
double StepExamples(const v1::JobStatus& status) {
  const double steps = static_cast<double>(std::max<int64_t>(1, status.steps_per_epoch()));
  const double batch = static_cast<double>(status.spec().batch_size()) * std::max(1, status.spec().accumulate_steps());
  const double examples = static_cast<double>(status.data().train_examples());
  const bool once = examples > batch * (steps - 1) && examples < batch * steps;
  return (once ? examples / steps : batch) / std::max(1, status.spec().replicas());
}

// Closed epochs whose late validation figures are still taken.
constexpr int kLateEpochs = 2;
// Of asynchronous replicas that are far apart, or where a share was lost: the oldest is given up.
constexpr size_t kOpenValidationsMax = 64;
// Between two questions for figures.
constexpr absl::Duration kFiguresAskedEvery = absl::Milliseconds(200);
// An epoch whose figures its ps goes on to report without all its steps: they were pushed by a worker, or kept by a ps,
// that knew of none.
constexpr absl::Duration kFiguresWaitMax = absl::Seconds(3);

double StalenessMean(const v1::EpochFigures& figures) {
  return figures.staleness_count() == 0
             ? 0
             : static_cast<double>(figures.staleness_sum()) / static_cast<double>(figures.staleness_count());
}

}  // namespace

JobProgress::JobProgress(const v1::JobStatus& status, std::vector<int64_t> replica_step, std::vector<bool> finished,
                         absl::Time now)
    : replicas_(status.spec().replicas()),
      epochs_(std::max(1, status.spec().epochs())),  // fewer where the job was stopped
      steps_per_epoch_(std::max<int64_t>(1, status.steps_per_epoch())),
      total_steps_(status.total_steps()),
      synchronous_(IsSynchronous(status.spec())),
      metrics_(status.spec().metrics_size()),
      validation_freq_(std::max(1, status.spec().validation_freq())),
      validation_examples_(status.spec().validation_by() == v1::BY_EVALUATOR
                               ? 0
                               : static_cast<int64_t>(status.data().validation_examples())),
      gated_(status.epochs_open() > 0),
      next_(std::move(replica_step)),
      reached_(replicas_, 0),
      complete_since_(replicas_, absl::InfiniteFuture()),
      finished_(std::move(finished)),
      epoch_start_(now),
      last_advance_(now),
      last_report_(now),
      heard_(replicas_, true),
      step_examples_(StepExamples(status)) {
  next_.resize(replicas_, 0);
  finished_.resize(replicas_, false);
  if (total_steps_ > 0) epochs_ = static_cast<int32_t>(std::min<int64_t>(epochs_, total_steps_ / steps_per_epoch_));
  // Of an open epoch nothing is counted yet: after a restart of the coordinator the workers report it again. One that
  // was lost meanwhile took its replicas' validation along, and where these were finished nobody would compute it
  // again.
  if (status.epochs_size() < epochs_) finished_.assign(finished_.size(), false);
  // Of an epoch that is gone on with in its midst, its time is not known.
  if (step() % steps_per_epoch_ != 0) epoch_start_.reset();
  rate_.Restart(now, ExamplesDone());
}

void JobProgress::GoesOn(absl::Time now, std::optional<absl::Time> epoch_start) {
  heard_.assign(heard_.size(), false);
  epoch_start_ = epoch_start ? std::optional(std::min(*epoch_start, now)) : std::nullopt;
}

double JobProgress::ExamplesDone() const {
  int64_t steps = 0;
  for (int32_t r = 0; r < replicas_; ++r) steps += ReachedBy(r);
  return step_examples_ * static_cast<double>(steps);
}

// After the replica said where it is.
void JobProgress::Measure(int32_t replica, absl::Time now) {
  if (heard_[replica]) return rate_.Note(now, ExamplesDone());
  heard_[replica] = true;
  rate_.Restart(now, ExamplesDone());
}

void JobProgress::EndAfter(int32_t epochs) {
  epochs_ = std::min(epochs_, epochs);
  total_steps_ = std::min(total_steps_, epochs * steps_per_epoch_);
}

// ---- figures of the training ----

absl::StatusOr<bool> JobProgress::TakeFigures(const v1::FiguresReport& report, const v1::JobStatus& status,
                                              absl::Time now) {
  CAIRN_RETURN_IF_ERROR(CheckEpochList(report.epochs(), metrics_));
  if (!report.epochs().empty() && report.epochs(report.epochs_size() - 1).epoch() >= status.spec().epochs()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "figures of epoch %d of %d", report.epochs(report.epochs_size() - 1).epoch(), status.spec().epochs()));
  }
  const auto place = [](const v1::FiguresReport& r) { return std::pair(r.generation(), r.version()); };
  if (figures_ && place(report) < place(*figures_)) return false;
  figures_ = report;
  figures_at_ = now;
  return true;
}

const v1::EpochFigures* JobProgress::FiguresOf(int epoch) const {
  if (!figures_) return nullptr;
  const auto found = std::find_if(figures_->epochs().begin(), figures_->epochs().end(),
                                  [&](const auto& e) { return e.epoch() == epoch; });
  return found == figures_->epochs().end() ? nullptr : &*found;
}

bool JobProgress::TrainComplete(int epoch) const {
  if (!figures_) return false;
  if (synchronous_) return figures_->version() >= static_cast<uint64_t>((epoch + 1) * steps_per_epoch_);
  const v1::EpochFigures* figures = FiguresOf(epoch);
  return figures != nullptr && figures->replica_steps() >= static_cast<uint64_t>(replicas_ * steps_per_epoch_);
}

bool JobProgress::WaitsForFigures(int epoch, const Epoch& e) const {
  // A ps that has counted for so long since has no more: the job began with one that did not count.
  return !TrainComplete(epoch) && figures_at_ - e.passed_at < kFiguresWaitMax;
}

bool JobProgress::AsksForFigures(absl::Time now, const v1::JobStatus& status) {
  if (now - figures_asked_ < kFiguresAskedEvery) return false;
  const int epoch = status.epochs_size();
  const auto open = open_.find(epoch);
  if (epoch >= epochs_ || open == open_.end() || open->second.passed_at > now || !WaitsForFigures(epoch, open->second))
    return false;
  figures_asked_ = now;
  return true;
}

// ---- reports of workers ----

absl::StatusOr<bool> JobProgress::Count(const v1::ReplicaReport& report, v1::JobStatus& status, absl::Time now) {
  const int32_t r = report.replica();
  if (r < 0 || r >= replicas_) {
    return absl::InvalidArgumentError(absl::StrFormat("replica %d of a job with %d", r, replicas_));
  }
  if (report.has_validation() && (report.validation_epoch() < 0 || report.validation_epoch() >= epochs_)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("validation of epoch %d of %d", report.validation_epoch(), epochs_));
  }
  bool counted = false;
  if (report.last_step() != 0 || (!report.has_validation() && !report.finished())) {
    if (report.last_step() < 0 || report.last_step() >= total_steps_) {
      return absl::InvalidArgumentError(absl::StrFormat("step %d of a job with %d", report.last_step(), total_steps_));
    }
    if (report.last_step() >= next_[r]) {
      next_[r] = report.last_step() + 1;
      last_advance_ = now;
      counted = true;
    }
    Measure(r, now);
  }
  if (report.validation_step() < 0 || report.validation_step() > total_steps_) {
    return absl::InvalidArgumentError(
        absl::StrFormat("validation after step %d of %d", report.validation_step(), total_steps_));
  }
  if (report.has_validation() && report.validation_step() > 0) {
    counted |= CountStepValidation(report, status);
  } else if (report.has_validation()) {
    CountValidation(report, status, now);
    counted = true;
  }
  if (report.finished() && !finished_[r]) {
    finished_[r] = true;
    next_[r] = total_steps_;
    counted = true;
  }
  if (counted) last_report_ = now;
  return counted;
}

void JobProgress::CountValidation(const v1::ReplicaReport& report, v1::JobStatus& status, absl::Time now) {
  const int epoch = report.validation_epoch();
  if (epoch < status.epochs_size() - kLateEpochs) return;
  Epoch& e = open_[epoch];
  e.validated.resize(replicas_, false);
  if (e.validated[report.replica()]) return;
  e.validated[report.replica()] = true;
  AddSums(report.validation(), metrics_, e.validation);
  if (ValidationComplete(epoch, e)) e.validated_at = std::min(e.validated_at, now);
  // Late figures of an epoch that is closed. After a restart of the coordinator they come anew: what is stored stays
  // until there is more.
  if (epoch >= status.epochs_size()) return;
  v1::MetricSums& closed = *status.mutable_epochs(epoch)->mutable_validation();
  if (e.validation.examples() > closed.examples()) closed = e.validation;
}

// Whole ones go into status.validations, each step once.
bool JobProgress::CountStepValidation(const v1::ReplicaReport& report, v1::JobStatus& status) {
  const int64_t step = report.validation_step();
  for (const v1::StepValidation& known : status.validations()) {
    if (known.step() == step) return false;
  }
  StepSums& open = open_validations_[step];
  open.validated.resize(replicas_, false);
  if (open.validated[report.replica()]) return false;
  open.validated[report.replica()] = true;
  AddSums(report.validation(), metrics_, open.sums);
  if (AllValidated(open.validated)) {
    v1::StepValidation whole;
    whole.set_step(step);
    *whole.mutable_sums() = open.sums;
    open_validations_.erase(step);
    AddStepValidation(std::move(whole), status);
  } else if (open_validations_.size() > kOpenValidationsMax) {
    open_validations_.erase(open_validations_.begin());
  }
  return true;
}

void JobProgress::Reached(const std::vector<int32_t>& replicas, int64_t step, absl::Time now) {
  for (int32_t r : replicas) {
    if (r < 0 || r >= replicas_) continue;
    if (step > ReachedBy(r)) last_advance_ = now;
    reached_[r] = std::max(reached_[r], std::min(step, total_steps_));
    Measure(r, now);
    if (step < total_steps_ || finished_[r]) continue;
    complete_since_[r] = std::min(complete_since_[r], now);
    if (now - complete_since_[r] >= kFinishedByHeartbeat) finished_[r] = true;
  }
}

void JobProgress::RollBack(int64_t step, absl::Time now) {
  figures_.reset();
  figures_at_ = absl::InfinitePast();
  if (step >= total_steps_) return;
  // What is waited for after an epoch's end is waited for anew when its steps are done once more.
  for (auto& [epoch, e] : open_) {
    if (step < (epoch + 1) * steps_per_epoch_) {
      e.passed_at = e.moved_on_at = absl::InfiniteFuture();
      e.ended_at.reset();
    }
  }
  for (int32_t r = 0; r < replicas_; ++r) {
    next_[r] = std::min(next_[r], step);
    reached_[r] = std::min(reached_[r], step);
    complete_since_[r] = absl::InfiniteFuture();
    finished_[r] = false;
  }
  last_advance_ = now;
  if (!synchronous_) heard_.assign(heard_.size(), false);  // they go on from what the partitions have
  rate_.Restart(now, ExamplesDone());
}

int64_t JobProgress::ReachedBy(int32_t replica) const { return std::max(next_[replica], reached_[replica]); }

int64_t JobProgress::step() const {
  int64_t step = total_steps_;
  for (int32_t r = 0; r < replicas_; ++r) step = std::min(step, ReachedBy(r));
  return step;
}

std::vector<int32_t> JobProgress::Slowest() const {
  const int64_t slowest = step();
  std::vector<int32_t> result;
  for (int32_t r = 0; r < replicas_; ++r) {
    if (ReachedBy(r) == slowest) result.push_back(r);
  }
  return result;
}

bool JobProgress::ValidationExpected(int epoch) const {
  return validation_examples_ > 0 && (epoch + 1) % validation_freq_ == 0;
}

bool JobProgress::ValidationComplete(int epoch, const Epoch& e) const {
  return !ValidationExpected(epoch) || AllValidated(e.validated);
}

bool JobProgress::AllValidated(const std::vector<bool>& validated) const {
  for (int32_t r = 0; r < replicas_; ++r) {
    const bool done = static_cast<size_t>(r) < validated.size() && validated[r];
    if (!done && Share(validation_examples_, r, replicas_).size() > 0) return false;
  }
  return true;
}

bool JobProgress::AwaitsValidation(int epoch, const v1::JobStatus& status) const {
  if (epoch < status.epochs_size() - kLateEpochs || !ValidationExpected(epoch)) return false;
  if (epoch >= status.epochs_size()) return true;
  return status.epochs(epoch).validation().examples() < static_cast<uint64_t>(validation_examples_);
}

int JobProgress::CloseEpochs(absl::Time now, absl::Duration grace, v1::JobStatus& status) {
  const int64_t reached = step();
  // Every epoch's own grace time runs from when it was passed: figures of several are waited for together.
  for (int epoch = status.epochs_size(); epoch < epochs_ && reached >= (epoch + 1) * steps_per_epoch_; ++epoch) {
    Epoch& e = open_[epoch];
    e.passed_at = std::min(e.passed_at, now);
    if (reached > (epoch + 1) * steps_per_epoch_) e.moved_on_at = std::min(e.moved_on_at, now);
  }
  EstimateEnds(status.epochs_size(), now);
  int closed = 0;
  while (status.epochs_size() < epochs_) {
    const int epoch = status.epochs_size();
    if (reached < (epoch + 1) * steps_per_epoch_) break;
    const Epoch& e = open_[epoch];
    if (WaitsForFigures(epoch, e)) break;
    if (!ValidationComplete(epoch, e) && (gated_ || now - e.moved_on_at < grace)) break;
    Append(epoch, now, status);
    ++closed;
  }
  return closed;
}

// One report may tell of the ends of several epochs, and of steps beyond: the time since what is known before is shared
// out by steps.
void JobProgress::EstimateEnds(int first, absl::Time now) {
  absl::Time last = std::min(epoch_start_.value_or(now), now);
  int64_t last_step = first * steps_per_epoch_;
  const double reached = static_cast<double>(step());
  for (int epoch = first; open_.contains(epoch) && open_[epoch].passed_at <= now; ++epoch) {
    Epoch& e = open_[epoch];
    const int64_t end = (epoch + 1) * steps_per_epoch_;
    if (!e.ended_at) {
      const double share = static_cast<double>(end - last_step) / (reached - static_cast<double>(last_step));
      e.ended_at = last + (now - last) * std::min(1.0, share);
    }
    last = *e.ended_at;
    last_step = end;
  }
}

void JobProgress::Append(int epoch, absl::Time now, v1::JobStatus& status) {
  const Epoch& e = open_[epoch];
  v1::EpochResult& result = *status.add_epochs();
  result.set_epoch(epoch);
  if (const v1::EpochFigures* figures = FiguresOf(epoch)) {
    *result.mutable_train() = figures->train();
    result.set_staleness_mean(StalenessMean(*figures));
    result.set_staleness_max(figures->staleness_max());
  }
  *result.mutable_validation() = e.validation;
  const absl::Time ended = std::min(e.ended_at.value_or(e.passed_at), now);
  if (epoch_start_) result.set_seconds(absl::ToDoubleSeconds(std::max(absl::ZeroDuration(), ended - *epoch_start_)));
  // Where its end was told of together with steps of the next one, that began at once.
  const absl::Time left = e.moved_on_at == e.passed_at ? ended : std::min(e.validated_at, e.moved_on_at);
  epoch_start_ = std::min(now, std::max(ended, left));
  const auto examples = static_cast<double>(result.train().examples());
  if (result.seconds() > 0) result.set_images_per_second(examples / result.seconds());
  open_.erase(open_.begin(), open_.lower_bound(epoch + 1 - kLateEpochs));
}

bool JobProgress::Done(absl::Time now, const v1::JobStatus& status) const {
  if (!std::all_of(finished_.begin(), finished_.end(), [](bool f) { return f; })) return false;
  if (status.epochs_size() == epochs_) return true;
  for (int epoch = status.epochs_size(); epoch < epochs_; ++epoch) {
    const auto open = open_.find(epoch);
    if (open == open_.end() || WaitsForFigures(epoch, open->second)) return false;
  }
  return now - last_report_ >= kLastValidationTimeout;
}

void JobProgress::CloseAll(absl::Time now, v1::JobStatus& status) {
  while (status.epochs_size() < epochs_) Append(status.epochs_size(), now, status);
}

const v1::MetricSums* JobProgress::NewestTrain(int* epoch) const {
  if (!figures_ || figures_->epochs().empty()) return nullptr;
  const v1::EpochFigures& newest = *figures_->epochs().rbegin();
  *epoch = newest.epoch();
  return &newest.train();
}

void JobProgress::Fill(absl::Time now, v1::JobStatus& status) const {
  const int64_t reached = step();
  status.set_step(reached);
  const int epoch = static_cast<int>(std::min<int64_t>(reached / steps_per_epoch_, epochs_ - 1));
  status.set_epoch(epoch);
  status.clear_epoch_sums();
  status.set_staleness_mean(0);
  status.set_staleness_max(0);
  if (const v1::EpochFigures* figures = FiguresOf(epoch)) {
    *status.mutable_epoch_sums() = figures->train();
    status.set_staleness_mean(StalenessMean(*figures));
    status.set_staleness_max(figures->staleness_max());
  }
  status.clear_images_per_second();
  if (const std::optional<double> rate = rate_.PerSecond(now)) status.set_images_per_second(*rate);
}

}  // namespace cairn
