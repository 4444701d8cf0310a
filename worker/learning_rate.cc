#include "worker/learning_rate.h"

namespace cairn {

float LearningRateAt(const v1::JobSpec& spec, int64_t /*step*/) { return spec.optimizer().learning_rate(); }

}  // namespace cairn
