// Backoff: the delay before the next retry: exponential, with jitter, so that many clients of one server do not
// retry in unison.
//
// Not thread-safe. Invariant: every delay is in [base / 2, base), where base doubles from `initial` to `max`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>

#include "absl/time/time.h"

namespace cairn {

struct BackoffOptions {
  absl::Duration initial = absl::Milliseconds(50);
  absl::Duration max = absl::Seconds(1);
};

class Backoff {
 public:
  Backoff(const BackoffOptions& options, uint64_t seed) : options_(options), random_(seed), base_(options.initial) {}

  absl::Duration Next() {
    const absl::Duration delay = base_ * std::uniform_real_distribution<double>(0.5, 1.0)(random_);
    base_ = std::min(base_ * 2, options_.max);
    return delay;
  }
  void Reset() { base_ = options_.initial; }  // after a success

 private:
  const BackoffOptions options_;
  std::mt19937_64 random_;
  absl::Duration base_;
};

}  // namespace cairn
