// The learning rate of a step: the job's schedule, which today is a constant.
#pragma once

#include <cstdint>

#include "cairn/v1/job.pb.h"

namespace cairn {

// spec: with its defaults filled in. step: from 0, of the whole job.
float LearningRateAt(const v1::JobSpec& spec, int64_t step);

}  // namespace cairn
