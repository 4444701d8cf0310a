// The options for lowering a graph.
#pragma once

#include <cstdint>
#include <vector>

#include "cairn/v1/optimizer.pb.h"
#include "worker/backend/cudnn/plan.h"
#include "worker/backend/loss.h"

namespace cairn::cudnn {

struct LoweringOptions {
  int64_t examples = 0;
  int64_t label_size = 1;    // numbers of an example's label
  bool row_weights = false;  // the labels are followed by the RowWeights of the batch (worker/backend/loss.h)
  Mode mode = Mode::kTrain;
  Element inputs = Element::kFloat;  // of the batch's inputs on the device
  Precision precision;
  v1::Loss loss;
  std::vector<v1::Metric> metrics;
  bool keep_outputs = false;  // until the end of the plan, since metrics are computed on the host
  LossPlan loss_plan;
};

// Whether the metrics are computed on the host, from outputs that are copied there: the loss kernel lacks some of them.
bool CountsOnHost(const v1::Loss& loss, const std::vector<v1::Metric>& metrics);

}  // namespace cairn::cudnn
