// LeaderTerm: the time for which a coordinator leads, by its lease in etcd.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "common/base/clock.h"

namespace cairn {

// One term of leadership, shared by the election (renews it), the store and the driver (check it). Thread-safe.
class LeaderTerm {
 public:
  LeaderTerm(std::string leader_key, int64_t create_revision, int64_t lease, Clock* clock)
      : leader_key(std::move(leader_key)), create_revision(create_revision), lease(lease), clock_(clock) {}

  // How long this process may act as the leader without a renewal; zero or less: it may not.
  absl::Duration Left() const { return absl::FromUnixNanos(until_.load()) - clock_->Now(); }
  bool Valid() const { return Left() > absl::ZeroDuration(); }

  void RenewUntil(absl::Time until) { until_ = absl::ToUnixNanos(until); }
  void End() { until_ = 0; }

  const std::string leader_key;
  const int64_t create_revision;  // of the leader key
  const int64_t lease;

 private:
  Clock* const clock_;
  std::atomic<int64_t> until_{0};  // by the clock, ns
};

}  // namespace cairn
