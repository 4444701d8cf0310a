// What a graph is lowered for.
#pragma once

#include <cstdint>
#include <vector>

#include "cairn/v1/optimizer.pb.h"
#include "worker/backend/cudnn/plan.h"
#include "worker/backend/loss.h"

namespace cairn::cudnn {

struct LoweringOptions {
  int64_t examples = 0;
  int64_t label_size = 1;  // numbers of an example's label
  Mode mode = Mode::kTrain;
  Element inputs = Element::kFloat;  // of the batch's inputs on the device
  Precision precision;
  v1::Loss loss;
  std::vector<v1::Metric> metrics;
  LossPlan loss_plan;
};

}  // namespace cairn::cudnn
