// RateMeter: how fast a total has grown over the last seconds.
//
// Not thread-safe; used by JobProgress. Invariants: 1. The rate is measured between two samples, both after the last
// Restart: growth before that does not count. 2. Memory is bounded by window / bucket.
#pragma once

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "absl/time/time.h"

namespace cairn {

class RateMeter {
 public:
  static constexpr absl::Duration kWindow = absl::Seconds(5);
  static constexpr absl::Duration kBucket = absl::Milliseconds(100);
  // A shorter time gives no rate.
  static constexpr absl::Duration kWindowMin = absl::Milliseconds(500);

  // Measures from here on.
  void Restart(absl::Time now, double total) { seen_ = {{now, total}}; }
  // Adds the total at `now`. A sample with a lower total or an earlier time than the last is ignored.
  void Note(absl::Time now, double total) {
    if (seen_.empty()) return Restart(now, total);
    if (now < seen_.back().first || total < seen_.back().second) return;
    if (seen_.size() > 1 && now - seen_[seen_.size() - 2].first < kBucket) {
      seen_.back() = {now, total};
    } else {
      seen_.emplace_back(now, total);
    }
    while (seen_.size() > 1 && now - seen_[1].first >= kWindow) seen_.pop_front();
  }
  // Growth per second; nullopt: not known yet.
  std::optional<double> PerSecond(absl::Time now) const {
    if (seen_.empty() || now - seen_.front().first < kWindowMin) return std::nullopt;
    const auto begin =
        std::find_if(seen_.rbegin(), seen_.rend(), [&](const auto& s) { return now - s.first >= kWindow; });
    const auto& [since, total] = begin == seen_.rend() ? seen_.front() : *begin;
    return (seen_.back().second - total) / absl::ToDoubleSeconds(now - since);
  }

 private:
  std::deque<std::pair<absl::Time, double>> seen_;  // the first: at most one that is older than the window
};

}  // namespace cairn
