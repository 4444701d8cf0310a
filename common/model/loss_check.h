// The check of a job's loss and metrics at submission.
//
// Pure functions; any thread. Errors: INVALID_ARGUMENT, `field: what is wrong; what to do`.
#pragma once

#include <string>
#include <vector>

#include "cairn/v1/job.pb.h"
#include "common/base/status.h"
#include "common/model/graph.h"

namespace cairn {

// Fills in Keras' defaults of the kind's own numbers, and refuses those of other kinds.
absl::Status CheckLoss(v1::Loss* loss, const Graph& graph);
absl::Status CheckLossOf(v1::Loss* loss, const Node& output);

// What computes, but is hardly meant.
void WarnOfLoss(const v1::Loss& loss, const Graph& graph, std::vector<std::string>* warnings);
// layer: how the text calls the output, as `layer "a"`.
void WarnOfLossOf(const v1::Loss& loss, const Node& output, const std::string& layer,
                  std::vector<std::string>* warnings);

// Needs the loss to be checked. Fills in defaults. (metric_check.cc)
absl::Status CheckMetrics(v1::JobSpec* spec, const Graph& graph);
// Of one output, each by itself.
absl::Status CheckMetricsOf(google::protobuf::RepeatedPtrField<v1::Metric>* metrics, const Node& output);

// Of a kind in an error: "MEAN_SQUARED_ERROR, MEAN_ABSOLUTE_ERROR, ...": all that can be computed.
std::string LossNames();

}  // namespace cairn
