// ValidationShares: the validations of one running job, which its replicas compute a share each of: at the end of
// epochs, and within them (validation_freq_steps).
//
// Not thread-safe; part of JobProgress. Invariants:
//   1. A replica's share of a validation is counted once: a report that is repeated adds nothing.
//   2. Memory is bounded: by ForgetBefore, and of validations within epochs by a limit, where the oldest is given up.
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

  // A share of the epoch's. Null: it is here already; else the sums with it.
  const v1::MetricSums* Add(const v1::ReplicaReport& report, absl::Time now);
  // A share of that after a step. Whole ones go into status.validations, each step once. False: it is here already.
  bool AddOfStep(const v1::ReplicaReport& report, v1::JobStatus& status);
  void ForgetBefore(int epoch) { epochs_.erase(epochs_.begin(), epochs_.lower_bound(epoch)); }

  bool Expected(int epoch) const { return examples_ > 0 && (epoch + 1) % freq_ == 0; }
  bool Complete(int epoch) const;              // all shares are there, or none is expected
  absl::Time complete_since(int epoch) const;  // InfiniteFuture: they are not
  v1::MetricSums sums(int epoch) const;
  int64_t examples() const { return examples_; }  // of a whole validation

 private:
  struct Sums {
    v1::MetricSums sums;
    std::vector<bool> validated;                         // by replica
    absl::Time complete_since = absl::InfiniteFuture();  // of an epoch's
  };
  // False: the replica's share is in the sums already.
  bool AddTo(Sums& sums, const v1::ReplicaReport& report) const;
  bool AllValidated(const std::vector<bool>& validated) const;

  int32_t replicas_;
  int metrics_;
  int32_t freq_;
  int64_t examples_;
  std::map<int, Sums> epochs_;
  std::map<int64_t, Sums> steps_;  // that not every replica has reported its share of; at most kOpenValidationsMax
};

}  // namespace cairn
