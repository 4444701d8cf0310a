// The options for lowering a graph.
#pragma once

#include <cstdint>
#include <vector>

#include "cairn/v1/optimizer.pb.h"
#include "worker/backend/cudnn/plan.h"
#include "worker/backend/loss.h"

namespace cairn::cudnn {

// The loss of one of several outputs: of some of the columns of the joined output (common/model/job_outputs.h).
struct LossPart {
  v1::Loss loss;
  LossPlan plan;
  std::vector<v1::Metric> metrics;  // that the device counts
  int64_t begin = 0, size = 0;      // numbers of an example's output
  int64_t label_begin = 0, label_size = 0;
  float weight = 1;
};

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
  // Of a model that trains several outputs, instead of loss, metrics and loss_plan. Their row weights follow the labels
  // one part after the other.
  std::vector<LossPart> parts;
};

// Whether the metrics are computed on the host, from outputs that are copied there: the loss kernel lacks some of them.
bool CountsOnHost(const v1::Loss& loss, const std::vector<v1::Metric>& metrics);

}  // namespace cairn::cudnn
