// Checks a job's loss and metrics at submission.
//
// Pure functions; any thread. Errors: INVALID_ARGUMENT, `field: what is wrong; what to do`.
#pragma once

#include <string>
#include <vector>

#include "cairn/v1/job.pb.h"
#include "common/base/status.h"
#include "common/model/graph.h"

namespace cairn {

// Fills in Keras' defaults of the parameters that the loss kind has, and rejects parameters that it does not have.
absl::Status CheckLoss(v1::Loss* loss, const Graph& graph);
absl::Status CheckLossOf(v1::Loss* loss, const Node& output);

// Warns about settings that work but are probably mistakes.
void WarnOfLoss(const v1::Loss& loss, const Graph& graph, std::vector<std::string>* warnings);
// layer: how the warning names the output, such as `layer "a"`.
void WarnOfLossOf(const v1::Loss& loss, const Node& output, const std::string& layer,
                  std::vector<std::string>* warnings);

// The loss must be checked before. Fills in defaults. (metric_check.cc)
absl::Status CheckMetrics(v1::JobSpec* spec, const Graph& graph);
// Refuses metrics beside a loss whose targets none of them takes.
absl::Status CheckMetricsBeside(v1::Loss::Kind loss, int metrics);
// Checks the metrics of one output.
absl::Status CheckMetricsOf(google::protobuf::RepeatedPtrField<v1::Metric>* metrics, const Node& output);

// The kinds that can be computed, for use in an error: "MEAN_SQUARED_ERROR, MEAN_ABSOLUTE_ERROR, ...".
std::string LossNames();

}  // namespace cairn
