#include "common/model/epoch_rates.h"

#include <algorithm>

#include "common/model/learning_rate.h"

namespace cairn {

EpochRates::EpochRates(const v1::JobSpec& spec, int64_t steps_per_epoch)
    : optimizer_(spec.optimizer()), steps_per_epoch_(std::max<int64_t>(1, steps_per_epoch)) {
  for (const v1::Callback& callback : spec.callbacks()) {
    if (!callback.has_learning_rate_scheduler()) continue;
    by_epoch_schedule_ = spec.optimizer();
    *by_epoch_schedule_->mutable_schedule() = callback.learning_rate_scheduler().schedule();
  }
}

float EpochRates::At(int64_t step) const {
  const int64_t epoch = step / steps_per_epoch_;
  if (epoch < static_cast<int64_t>(by_epoch_.size())) return by_epoch_[static_cast<size_t>(epoch)];
  return by_epoch_schedule_ ? LearningRateAt(*by_epoch_schedule_, epoch) : LearningRateAt(optimizer_, step);
}

}  // namespace cairn
