// A job that trains a model with several outputs (JobSpec.outputs): its figures, and the joined model, which backends
// compute. The joined model has one output, the concatenation of all outputs of the model.
//
// Pure functions; any thread. Invariants:
//   1. The joined model has the variables of the model, at the same offsets.
//   2. The numbers of the outputs are in the joined output in the order of Graph::outputs(), each output flattened.
//      Targets are in an example's labels in the order of JobSpec.outputs; CheckJob makes it the same order.
#pragma once

#include <string>
#include <vector>

#include "cairn/v1/job.pb.h"
#include "common/base/status.h"
#include "common/model/graph.h"

namespace cairn {

struct JoinedOutput {
  std::string name;
  int node = 0;                             // in the model
  Shape shape;                              // without the batch axis
  int64_t begin = 0, size = 0;              // position in the joined output, in numbers of an example
  bool trained = false;                     // it has an entry in JobSpec.outputs, which the fields below describe
  v1::OutputLoss with;                      // defaults filled in
  int64_t label_begin = 0, label_size = 0;  // position in an example's labels
  v1::Activation left_out = v1::LINEAR;     // the joined output has the values before this activation (logits)
};

inline bool TrainsOutputs(const v1::JobSpec& spec) { return spec.outputs_size() > 0; }

// graph: that of spec.model. spec: must be checked.
std::vector<JoinedOutput> JoinedOutputsOf(const Graph& graph, const v1::JobSpec& spec);
// Errors: as Graph::Build.
absl::StatusOr<Graph> BuildJoined(const v1::Model& model, const std::vector<JoinedOutput>& outputs);

// Whether the joined model can be built: it has more layers than the model, and a larger output. Errors:
// INVALID_ARGUMENT, `outputs: ...`.
absl::Status CheckJoined(const Graph& graph, const v1::JobSpec& spec);

// The job's metrics. With one output these are JobSpec.metrics. With several outputs they are the mean of each output's
// loss ("a_loss"), then each output's metrics ("a_accuracy"), ordered and named as in Keras. A loss, or a
// figure of a program, is a metric of kind METRIC_UNSPECIFIED, a mean.
std::vector<v1::Metric> FiguresOfJob(const v1::JobSpec& spec);
int FigureCount(const v1::JobSpec& spec);

}  // namespace cairn
