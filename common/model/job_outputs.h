// A job that trains a model with several outputs (JobSpec.outputs): what its figures are, and the model as backends
// compute it, with one output, which is all of the model's outputs side by side.
//
// Pure functions; any thread. Invariants:
//   1. The joined model has the variables of the model, at the same places.
//   2. An output's numbers stand in the joined output in the order of Graph::outputs(), each with its axes laid out
//      flat; its target stands in an example's labels in the order of JobSpec.outputs, which CheckJob makes the same.
#pragma once

#include <string>
#include <vector>

#include "cairn/v1/job.pb.h"
#include "common/base/status.h"
#include "common/model/graph.h"

namespace cairn {

struct JoinedOutput {
  std::string name;
  int node = 0;                             // of the model
  Shape shape;                              // of an example
  int64_t begin = 0, size = 0;              // in the joined output, numbers of an example
  bool trained = false;                     // there is an entry in JobSpec.outputs; the rest is of that entry
  v1::OutputLoss with;                      // defaults filled in
  int64_t label_begin = 0, label_size = 0;  // in an example's labels
  v1::Activation left_out = v1::LINEAR;     // the joined output has the numbers before this activation (logits)
};

inline bool TrainsOutputs(const v1::JobSpec& spec) { return spec.outputs_size() > 0; }

// graph: of spec.model. spec: checked.
std::vector<JoinedOutput> JoinedOutputsOf(const Graph& graph, const v1::JobSpec& spec);
// Errors: as Graph::Build's.
absl::StatusOr<Graph> BuildJoined(const v1::Model& model, const std::vector<JoinedOutput>& outputs);

// The job's metrics: JobSpec.metrics; or, of several outputs, the mean of each output's loss ("a_loss"), then each
// output's metrics ("a_accuracy"), as Keras orders and names them; or model.external's figures. A loss, or a program's
// figure, is a metric of kind METRIC_UNSPECIFIED, a mean.
std::vector<v1::Metric> FiguresOfJob(const v1::JobSpec& spec);
int FigureCount(const v1::JobSpec& spec);

}  // namespace cairn
