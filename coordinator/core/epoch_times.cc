#include "coordinator/core/epoch_times.h"

#include <algorithm>

namespace cairn {

// The grace time of every epoch starts when the epoch has been passed, so figures of several epochs are waited for
// concurrently.
void EpochTimes::Pass(int first, int end, int64_t step, absl::Time now) {
  for (int epoch = first; epoch < end && step >= (epoch + 1) * steps_per_epoch_; ++epoch) {
    Times& e = passed_[epoch];
    e.passed_at = std::min(e.passed_at, now);
    if (step > (epoch + 1) * steps_per_epoch_) e.moved_on_at = std::min(e.moved_on_at, now);
  }
  EstimateEnds(first, step, now);
}

// One report may include the ends of several epochs, and steps beyond. The time since the previous report is divided in
// proportion to the steps.
void EpochTimes::EstimateEnds(int first, int64_t step, absl::Time now) {
  absl::Time last = std::min(start_.value_or(now), now);
  int64_t last_step = first * steps_per_epoch_;
  const double reached = static_cast<double>(step);
  for (int epoch = first; passed_at(epoch) <= now; ++epoch) {
    Times& e = passed_[epoch];
    const int64_t end = (epoch + 1) * steps_per_epoch_;
    if (!e.ended_at) {
      const double share = static_cast<double>(end - last_step) / (reached - static_cast<double>(last_step));
      e.ended_at = last + (now - last) * std::min(1.0, share);
    }
    last = *e.ended_at;
    last_step = end;
  }
}

std::optional<double> EpochTimes::Close(int epoch, absl::Time validated_at, absl::Time now) {
  const Times& e = passed_[epoch];
  const absl::Time ended = std::min(e.ended_at.value_or(e.passed_at), now);
  std::optional<double> seconds;
  if (start_) seconds = absl::ToDoubleSeconds(std::max(absl::ZeroDuration(), ended - *start_));
  // If its end was reported together with steps of the next epoch, that one began immediately.
  const absl::Time left = e.moved_on_at == e.passed_at ? ended : std::min(validated_at, e.moved_on_at);
  start_ = std::min(now, std::max(ended, left));
  return seconds;
}

// Whatever is waited for after an epoch's end is waited for again once its steps are repeated.
void EpochTimes::RollBack(int64_t step) {
  for (auto& [epoch, e] : passed_) {
    if (step < (epoch + 1) * steps_per_epoch_) e = {};
  }
}

absl::Time EpochTimes::passed_at(int epoch) const {
  const auto found = passed_.find(epoch);
  return found == passed_.end() ? absl::InfiniteFuture() : found->second.passed_at;
}

absl::Time EpochTimes::moved_on_at(int epoch) const {
  const auto found = passed_.find(epoch);
  return found == passed_.end() ? absl::InfiniteFuture() : found->second.moved_on_at;
}

}  // namespace cairn
