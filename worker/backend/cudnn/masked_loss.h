// What the host brings to the loss of an output with masked steps; the device knows the mask.
//
// A pure function; any thread.
#pragma once

#include <vector>

#include "worker/backend/backend.h"
#include "worker/backend/loss.h"

namespace cairn::cudnn {

// The weights of rows as kernels::MaskedRowWeights takes them: those of the examples, -1 where the class is ignored;
// empty: all 1.
std::vector<float> WeightsBeforeMask(const v1::Loss& loss, const LossPlan& plan, const Batch& batch);

}  // namespace cairn::cudnn
