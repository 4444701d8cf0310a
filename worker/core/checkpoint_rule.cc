#include "worker/core/checkpoint_rule.h"

#include <algorithm>

namespace cairn {

CheckpointRule::CheckpointRule(const v1::JobSpec& spec, int64_t steps_per_epoch, int64_t total_steps, int64_t begun_at,
                               absl::Time now)
    : total_steps_(total_steps), on_(spec.has_checkpoints()), last_step_(begun_at), last_time_(now) {
  const v1::Checkpoints& c = spec.checkpoints();
  every_steps_ = c.every_steps();
  every_epochs_ = c.every_epochs() * steps_per_epoch;
  if (c.every_minutes() > 0) every_ = absl::Minutes(c.every_minutes());
}

bool CheckpointRule::Due(int64_t step, absl::Time now) const {
  if (!on_ || step <= last_step_) return false;
  return step == total_steps_ || Passed(every_steps_, step) || Passed(every_epochs_, step) ||
         now - last_time_ >= every_;
}

void CheckpointRule::Taken(int64_t step, absl::Time at) {
  last_step_ = std::max(last_step_, step);
  last_time_ = std::max(last_time_, at);
}

}  // namespace cairn
