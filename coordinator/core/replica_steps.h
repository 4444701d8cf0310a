// ReplicaSteps: the steps that the replicas of one job have done, and how fast they advance.
//
// Not thread-safe; part of JobProgress. Invariants:
//   1. A replica's step is the highest of its reports and heartbeats; only RollBack lowers it.
//   2. A finished replica has done all steps. If its final report was lost, its heartbeats count instead after a
//      while.
//   3. A report takes the same time in a job of one replica and of a thousand: all are looked at only when the slowest
//      one has advanced, once for each step of the job.
//   4. The rate counts only steps observed to be done: a replica's first report after GoesOn only tells where it is.
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
  // next: the next step of each replica. finished: by replica. Missing elements are 0 and false.
  ReplicaSteps(const v1::JobStatus& status, std::vector<int64_t> next, std::vector<bool> finished, absl::Time now);
  // As JobProgress::GoesOn.
  void GoesOn() { heard_.assign(heard_.size(), false); }

  // The replica has done this step and all before it. True: that is new.
  bool Report(int32_t replica, int64_t last_step, absl::Time now);
  // The replica has done all steps. True: that is new.
  bool Finish(int32_t replica);
  // A worker's heartbeat: its replicas have reached `step`.
  void Reached(const std::vector<int32_t>& replicas, int64_t step, absl::Time now);
  void RestartWait(absl::Time now) { last_advance_ = now; }
  // All replicas continue from `step` at most, which is before the end.
  void RollBack(int64_t step, absl::Time now);
  void EndAfter(int64_t steps) { total_steps_ = std::min(total_steps_, steps); }

  int32_t count() const { return static_cast<int32_t>(next_.size()); }
  int64_t total_steps() const { return total_steps_; }
  int64_t step() const { return std::min(total_steps_, slowest_); }  // that all replicas have reached
  std::vector<int32_t> Slowest() const;
  absl::Time last_advance() const { return last_advance_; }
  const std::vector<int64_t>& next() const { return next_; }
  const std::vector<bool>& finished() const { return finished_; }
  bool all_finished() const;
  std::optional<double> ExamplesPerSecond(absl::Time now) const { return rate_.PerSecond(now); }

 private:
  int64_t ReachedBy(int32_t replica) const { return std::max(next_[replica], reached_[replica]); }
  void Measure(int32_t replica, absl::Time now);
  double ExamplesDone() const { return step_examples_ * static_cast<double>(done_); }
  void NoteAdvance(int32_t replica, int64_t before);
  void Recount();

  int64_t total_steps_;
  bool synchronous_;
  double step_examples_;                    // mean examples per step of one replica
  std::vector<int64_t> next_;               // by replica: its next step according to its reports
  std::vector<int64_t> reached_;            // by replica: its next step according to heartbeats
  std::vector<absl::Time> complete_since_;  // by replica: since when heartbeats tell that all steps are done
  std::vector<bool> finished_;
  std::vector<bool> heard_;  // by replica: its present step is known
  int64_t done_ = 0;         // by all replicas together
  int64_t slowest_ = 0;      // the least that a replica has done
  int32_t at_slowest_ = 0;   // replicas that have done no more
  absl::Time last_advance_;
  RateMeter rate_;  // of examples, by the steps of all replicas
};

}  // namespace cairn
