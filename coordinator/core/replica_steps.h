// ReplicaSteps: how far the replicas of one job are, and how fast they advance.
//
// Not thread-safe; part of JobProgress. Invariants:
//   1. A replica is as far as the furthest of its reports and heartbeats says; only RollBack takes it back.
//   2. A replica that is finished has done all steps; where its own word of that was lost, its heartbeats count after a
//      while.
//   3. The rate is of steps that were seen to be done: a replica's first word after GoesOn only says where it is.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/job_status.pb.h"
#include "coordinator/core/rate_meter.h"

namespace cairn {

class ReplicaSteps {
 public:
  // next: by replica its next step; finished: by replica. Shorter: 0, false.
  ReplicaSteps(const v1::JobStatus& status, std::vector<int64_t> next, std::vector<bool> finished, absl::Time now);
  // As JobProgress::GoesOn.
  void GoesOn() { heard_.assign(heard_.size(), false); }

  // The replica has done this step, and those before. True: that was not known.
  bool Report(int32_t replica, int64_t last_step, absl::Time now);
  // The replica has done all steps. True: that was not known.
  bool Finish(int32_t replica);
  // A worker's heartbeat: its replicas have reached `step`.
  void Reached(const std::vector<int32_t>& replicas, int64_t step, absl::Time now);
  void RestartWait(absl::Time now) { last_advance_ = now; }
  // All go on from `step` at most, which is before the end.
  void RollBack(int64_t step, absl::Time now);
  void EndAfter(int64_t steps) { total_steps_ = std::min(total_steps_, steps); }

  int32_t count() const { return static_cast<int32_t>(next_.size()); }
  int64_t total_steps() const { return total_steps_; }
  int64_t step() const;  // that all replicas have reached
  std::vector<int32_t> Slowest() const;
  absl::Time last_advance() const { return last_advance_; }
  const std::vector<int64_t>& next() const { return next_; }
  const std::vector<bool>& finished() const { return finished_; }
  bool all_finished() const;
  std::optional<double> ExamplesPerSecond(absl::Time now) const { return rate_.PerSecond(now); }

 private:
  int64_t ReachedBy(int32_t replica) const { return std::max(next_[replica], reached_[replica]); }
  void Measure(int32_t replica, absl::Time now);
  double ExamplesDone() const;

  int64_t total_steps_;
  bool synchronous_;
  double step_examples_;                    // of one replica, in the mean
  std::vector<int64_t> next_;               // next step of a replica, as its reports say
  std::vector<int64_t> reached_;            // as heartbeats say, by replica
  std::vector<absl::Time> complete_since_;  // since when heartbeats say that all steps are done
  std::vector<bool> finished_;
  std::vector<bool> heard_;  // by replica: where it is is known
  absl::Time last_advance_;
  RateMeter rate_;  // of examples, by the steps of all replicas
};

}  // namespace cairn
