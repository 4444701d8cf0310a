// ValidationShares: the validations of one running job, at the end of epochs and within them (validation_freq_steps).
// Each replica computes a share.
//
// Not thread-safe; part of JobProgress. Invariants:
//   1. A replica's share of a validation is counted once: a repeated report adds nothing.
//   2. Memory is bounded: by ForgetBefore, and within epochs by a limit, beyond which the oldest validation is dropped.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"
#include "cairn/v1/job_status.pb.h"

namespace cairn {

class ValidationShares {
 public:
  explicit ValidationShares(const v1::JobStatus& status);

  // A share of the epoch's validation. Returns the sums with it; null: the share was counted already.
  const v1::MetricSums* Add(const v1::ReplicaReport& report, absl::Time now);
  // A share of the validation after a step. Complete ones go into status.validations. False: it was counted already.
  bool AddOfStep(const v1::ReplicaReport& report, v1::JobStatus& status);
  void ForgetBefore(int epoch) { epochs_.erase(epochs_.begin(), epochs_.lower_bound(epoch)); }

  bool Expected(int epoch) const { return examples_ > 0 && (epoch + 1) % freq_ == 0; }
  bool Complete(int epoch) const;              // all shares are there, or none is expected
  absl::Time complete_since(int epoch) const;  // InfiniteFuture: not complete
  v1::MetricSums sums(int epoch) const;
  int64_t examples() const { return examples_; }  // of a complete validation

 private:
  struct Sums {
    v1::MetricSums sums;
    std::vector<bool> validated;                         // by replica
    absl::Time complete_since = absl::InfiniteFuture();  // for an epoch's validation
  };
  // False: the replica's share is in the sums already.
  bool AddTo(Sums& sums, const v1::ReplicaReport& report) const;
  bool AllValidated(const std::vector<bool>& validated) const;

  int32_t replicas_;
  int metrics_;
  int32_t freq_;
  int64_t examples_;
  std::map<int, Sums> epochs_;
  std::map<int64_t, Sums> steps_;  // by step: incomplete validations, at most kOpenValidationsMax
};

}  // namespace cairn
