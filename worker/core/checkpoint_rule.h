// CheckpointRule: after which steps a checkpoint is due (JobSpec.checkpoints).
//
// Part of ReplicaCore: one caller at a time. A checkpoint that was missed (the chief was lost, the disk was full) is
// due again at the next step.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "cairn/v1/job.pb.h"

namespace cairn {

class CheckpointRule {
 public:
  // Without spec.checkpoints nothing is ever due. `begun_at`: the step that the job began with, at time `now`.
  CheckpointRule(const v1::JobSpec& spec, int64_t steps_per_epoch, int64_t total_steps, int64_t begun_at,
                 absl::Time now);

  // Whether a checkpoint is due after `step` updates: since the last one, an every_steps or every_epochs boundary or
  // the job's last step was reached, or every_minutes have passed.
  bool Due(int64_t step, absl::Time now) const;
  // The job ends earlier than planned.
  void EndAt(int64_t total_steps) { total_steps_ = total_steps; }
  // A checkpoint of this step exists, written at `at`.
  void Taken(int64_t step, absl::Time at);

 private:
  bool Passed(int64_t every, int64_t step) const { return every > 0 && step / every > last_step_ / every; }

  int64_t every_steps_ = 0;   // 0: no such rule
  int64_t every_epochs_ = 0;  // in steps
  absl::Duration every_ = absl::InfiniteDuration();
  int64_t total_steps_ = 0;
  bool on_ = false;
  int64_t last_step_ = 0;
  absl::Time last_time_;
};

}  // namespace cairn
