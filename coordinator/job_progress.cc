#include "coordinator/job_progress.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "common/model/step_plan.h"

namespace cairn {
namespace {

constexpr absl::Duration kRateWindow = absl::Seconds(5);
constexpr absl::Duration kRateBucket = absl::Milliseconds(100);
// A worker's "finished" that got lost with its session is taken from its heartbeats after this long.
constexpr absl::Duration kFinishedByHeartbeat = absl::Seconds(5);
// Workers say "finished" after the last validation: figures that are not there by then were lost, and are waited for
// this long.
constexpr absl::Duration kLastValidationTimeout = absl::Seconds(3);
// Closed epochs whose late validation figures are still taken.
constexpr int kLateEpochs = 2;
// Of asynchronous replicas that are far apart, or where a share was lost: the oldest is given up.
constexpr size_t kOpenValidationsMax = 64;

}  // namespace

void AddSums(const v1::MetricSums& from, int metrics, v1::MetricSums& to) {
  to.set_examples(to.examples() + from.examples());
  to.set_loss(to.loss() + from.loss());
  while (to.metrics_size() < metrics) to.add_metrics(0);
  for (int i = 0; i < std::min(metrics, from.metrics_size()); ++i) to.set_metrics(i, to.metrics(i) + from.metrics(i));
}

JobProgress::JobProgress(const v1::JobStatus& status, std::vector<int64_t> replica_step, std::vector<bool> finished,
                         absl::Time now)
    : replicas_(status.spec().replicas()),
      epochs_(std::max(1, status.spec().epochs())),  // fewer where the job was stopped
      steps_per_epoch_(std::max<int64_t>(1, status.steps_per_epoch())),
      total_steps_(status.total_steps()),
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
      rate_start_(now) {
  next_.resize(replicas_, 0);
  finished_.resize(replicas_, false);
  if (total_steps_ > 0) epochs_ = static_cast<int32_t>(std::min<int64_t>(epochs_, total_steps_ / steps_per_epoch_));
  // Of an open epoch nothing is counted yet: after a restart of the coordinator the workers report it again. One that was lost meanwhile took
  // its replicas' validation along, and where these were finished nobody would compute it again.
  if (status.epochs_size() < epochs_) finished_.assign(finished_.size(), false);
  const int64_t begin = std::max(status.restored_step(), status.epochs_size() * steps_per_epoch_);
  covered_.resize(replicas_);
  if (begin > 0) {
    for (auto& covered : covered_) covered[0] = begin - 1;
  }
}

void JobProgress::EndAfter(int32_t epochs) {
  epochs_ = std::min(epochs_, epochs);
  total_steps_ = std::min(total_steps_, epochs * steps_per_epoch_);
}

// Whether none of the steps was counted before; they are from now on.
bool JobProgress::Cover(int32_t replica, int64_t first, int64_t last) {
  std::map<int64_t, int64_t>& covered = covered_[replica];
  auto next = covered.upper_bound(first);
  if (next != covered.end() && next->first <= last) return false;
  if (next != covered.begin()) {
    auto before = std::prev(next);
    if (before->second >= first) return false;
    if (before->second + 1 == first) {
      first = before->first;
      covered.erase(before);
    }
  }
  if (next != covered.end() && next->first == last + 1) {
    last = next->second;
    covered.erase(next);
  }
  covered[first] = last;
  return true;
}

bool JobProgress::TrainComplete(int epoch) const {
  const int64_t begin = epoch * steps_per_epoch_, end = begin + steps_per_epoch_;
  return std::all_of(covered_.begin(), covered_.end(), [&](const std::map<int64_t, int64_t>& covered) {
    auto it = covered.upper_bound(begin);
    return it != covered.begin() && std::prev(it)->second + 1 >= end;
  });
}

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
  if (report.has_train()) {
    const int64_t first = report.first_step(), last = report.last_step();
    if (first < 0 || last < first || last >= total_steps_ || first / steps_per_epoch_ != last / steps_per_epoch_) {
      return absl::InvalidArgumentError(
          absl::StrFormat("steps %d to %d of a job with %d, %d an epoch", first, last, total_steps_, steps_per_epoch_));
    }
    // An overlap cannot be taken out of the sums: then only the place advances.
    const int epoch = static_cast<int>(first / steps_per_epoch_);
    if (epoch >= status.epochs_size() && Cover(r, first, last)) {
      Epoch& e = open_[epoch];
      AddSums(report.train(), metrics_, e.train);
      e.staleness_sum += report.staleness_sum();
      e.staleness_count += report.staleness_count();
      e.staleness_max = std::max(e.staleness_max, report.staleness_max());
      if (recent_.empty() || now - recent_.back().first >= kRateBucket) recent_.emplace_back(now, 0);
      recent_.back().second += report.train().examples();
      while (now - recent_.front().first > kRateWindow) recent_.pop_front();
    }
    if (last >= next_[r]) {
      next_[r] = last + 1;
      last_advance_ = now;
      counted = true;
    }
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
  // Late figures of an epoch that is closed. After a restart of the coordinator they come anew: what is stored stays until there is more.
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

void AddStepValidation(v1::StepValidation validation, v1::JobStatus& status) {
  auto& all = *status.mutable_validations();
  const auto after = std::find_if(all.begin(), all.end(), [&](const auto& v) { return v.step() > validation.step(); });
  const auto place = static_cast<int>(after - all.begin());
  *all.Add() = std::move(validation);
  std::rotate(all.begin() + place, all.end() - 1, all.end());
  if (all.size() > kStepValidationsKept) all.erase(all.begin());
}

void JobProgress::Reached(const std::vector<int32_t>& replicas, int64_t step, absl::Time now) {
  for (int32_t r : replicas) {
    if (r < 0 || r >= replicas_) continue;
    if (step > ReachedBy(r)) last_advance_ = now;
    reached_[r] = std::max(reached_[r], std::min(step, total_steps_));
    if (step < total_steps_ || finished_[r]) continue;
    complete_since_[r] = std::min(complete_since_[r], now);
    if (now - complete_since_[r] >= kFinishedByHeartbeat) finished_[r] = true;
  }
}

void JobProgress::RollBack(int64_t step, absl::Time now) {
  if (step >= total_steps_) return;
  for (int32_t r = 0; r < replicas_; ++r) {
    next_[r] = std::min(next_[r], step);
    reached_[r] = std::min(reached_[r], step);
    complete_since_[r] = absl::InfiniteFuture();
    finished_[r] = false;
  }
  last_advance_ = now;
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

int JobProgress::CloseEpochs(absl::Time now, absl::Duration grace, v1::JobStatus& status) {
  const int64_t reached = step();
  // Every epoch's own grace time runs from when it was passed: figures that were lost for several are waited for
  // together.
  for (int epoch = status.epochs_size(); epoch < epochs_ && reached >= (epoch + 1) * steps_per_epoch_; ++epoch) {
    Epoch& e = open_[epoch];
    e.passed_at = std::min(e.passed_at, now);
    if (reached > (epoch + 1) * steps_per_epoch_) e.moved_on_at = std::min(e.moved_on_at, now);
  }
  int closed = 0;
  while (status.epochs_size() < epochs_) {
    const int epoch = status.epochs_size();
    const int64_t end = (epoch + 1) * steps_per_epoch_;
    if (reached < end) break;
    const Epoch& e = open_[epoch];
    if (!TrainComplete(epoch) && now - e.passed_at < grace) break;
    if (!ValidationComplete(epoch, e) && (gated_ || now - e.moved_on_at < grace)) break;
    Append(epoch, now, status);
    ++closed;
  }
  return closed;
}

void JobProgress::Append(int epoch, absl::Time now, v1::JobStatus& status) {
  const Epoch& e = open_[epoch];
  v1::EpochResult& result = *status.add_epochs();
  result.set_epoch(epoch);
  *result.mutable_train() = e.train;
  *result.mutable_validation() = e.validation;
  if (e.staleness_count > 0) {
    result.set_staleness_mean(static_cast<double>(e.staleness_sum) / static_cast<double>(e.staleness_count));
    result.set_staleness_max(e.staleness_max);
  }
  const absl::Time passed = std::min(e.passed_at, now);
  result.set_seconds(absl::ToDoubleSeconds(std::max(absl::ZeroDuration(), passed - epoch_start_)));
  epoch_start_ = std::max(passed, std::min(e.validated_at, e.moved_on_at));
  if (epoch_start_ > now) epoch_start_ = now;
  if (result.seconds() > 0) result.set_images_per_second(static_cast<double>(e.train.examples()) / result.seconds());
  open_.erase(open_.begin(), open_.lower_bound(epoch + 1 - kLateEpochs));
  for (auto& covered : covered_) {  // reports of a closed epoch are not counted
    while (!covered.empty() && covered.begin()->second < (epoch + 1) * steps_per_epoch_) covered.erase(covered.begin());
  }
}

bool JobProgress::Done(absl::Time now, const v1::JobStatus& status) const {
  if (!std::all_of(finished_.begin(), finished_.end(), [](bool f) { return f; })) return false;
  return status.epochs_size() == epochs_ || now - last_report_ >= kLastValidationTimeout;
}

void JobProgress::CloseAll(absl::Time now, v1::JobStatus& status) {
  while (status.epochs_size() < epochs_) Append(status.epochs_size(), now, status);
}

void JobProgress::Fill(absl::Time now, v1::JobStatus& status) const {
  const int64_t reached = step();
  status.set_step(reached);
  const int epoch = static_cast<int>(std::min<int64_t>(reached / steps_per_epoch_, epochs_ - 1));
  status.set_epoch(epoch);
  status.clear_epoch_sums();
  status.set_staleness_mean(0);
  status.set_staleness_max(0);
  if (auto it = open_.find(epoch); it != open_.end()) {
    const Epoch& e = it->second;
    *status.mutable_epoch_sums() = e.train;
    if (e.staleness_count > 0) {
      status.set_staleness_mean(static_cast<double>(e.staleness_sum) / static_cast<double>(e.staleness_count));
    }
    status.set_staleness_max(e.staleness_max);
  }
  uint64_t examples = 0;
  for (const auto& [time, count] : recent_) {
    if (now - time <= kRateWindow) examples += count;
  }
  const absl::Duration window = std::clamp(now - rate_start_, absl::Milliseconds(200), kRateWindow);
  status.set_images_per_second(static_cast<double>(examples) / absl::ToDoubleSeconds(window));
}

}  // namespace cairn
