// RunningStep: the current step of all own replicas of a synchronous job. SynchronousMode writes it; OwnReplicas and
// StepPushes read it.
#pragma once

#include <cstdint>

#include "common/tensor/buffer.h"

namespace cairn::replica {

struct RunningStep {
  int64_t number = 0;
  Buffer values;         // before the step
  float loss_scale = 0;  // of jobs that have one
};

}  // namespace cairn::replica
