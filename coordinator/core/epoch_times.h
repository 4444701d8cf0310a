// EpochTimes: when the epochs of one job began and ended, as far as the reports of its replicas tell.
//
// Not thread-safe; part of JobProgress. Invariants:
//   1. Times do not overlap: an epoch begins when the one before it ended, or later.
//   2. Memory is bounded: only epochs that all replicas have passed and that ForgetBefore has not dropped are kept.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "absl/time/time.h"

namespace cairn {

class EpochTimes {
 public:
  // start: of the running epoch; nullopt: not known.
  EpochTimes(int64_t steps_per_epoch, std::optional<absl::Time> start)
      : steps_per_epoch_(steps_per_epoch), start_(start) {}
  void SetStart(std::optional<absl::Time> start) { start_ = start; }

  // All replicas have reached `step`, and with it the ends of the epochs from `first` on, up to `end`.
  void Pass(int first, int end, int64_t step, absl::Time now);
  // Closes the epoch, which is the oldest. Returns its duration in seconds; nullopt: not known. validated_at: when its
  // validation was complete.
  std::optional<double> Close(int epoch, absl::Time validated_at, absl::Time now);
  // The steps from `step` on will be repeated.
  void RollBack(int64_t step);
  void ForgetBefore(int epoch) { passed_.erase(passed_.begin(), passed_.lower_bound(epoch)); }

  std::optional<absl::Time> start() const { return start_; }
  bool Knows(int epoch) const { return passed_.contains(epoch); }
  absl::Time passed_at(int epoch) const;    // when all replicas were past its steps; InfiniteFuture: they are not
  absl::Time moved_on_at(int epoch) const;  // when all were into the next epoch; likewise

 private:
  struct Times {
    absl::Time passed_at = absl::InfiniteFuture();
    std::optional<absl::Time> ended_at;  // the best estimate of the epoch's end
    absl::Time moved_on_at = absl::InfiniteFuture();
  };
  void EstimateEnds(int first, int64_t step, absl::Time now);

  int64_t steps_per_epoch_;
  std::optional<absl::Time> start_;
  std::map<int, Times> passed_;
};

}  // namespace cairn
