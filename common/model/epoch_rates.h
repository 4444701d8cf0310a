// EpochRates: the learning rate of each step of a job, including the decisions of its callbacks.
//
// A value; const methods may be called from any thread. For a step of epoch e the first of these applies: what
// callbacks decided for e (reduce_lr_on_plateau), learning_rate_scheduler's schedule at e, the optimizer's schedule at
// the step.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cairn/v1/job.pb.h"
#include "cairn/v1/optimizer.pb.h"

namespace cairn {

class EpochRates {
 public:
  EpochRates() = default;
  // spec: must have its defaults filled in.
  EpochRates(const v1::JobSpec& spec, int64_t steps_per_epoch);

  // Sets the rates that callbacks decided, indexed by epoch. Epochs beyond its end follow the schedules.
  void Decide(std::vector<float> by_epoch) { by_epoch_ = std::move(by_epoch); }
  float At(int64_t step) const;

 private:
  v1::Optimizer optimizer_;
  std::optional<v1::Optimizer> by_epoch_schedule_;
  int64_t steps_per_epoch_ = 1;
  std::vector<float> by_epoch_;
};

}  // namespace cairn
