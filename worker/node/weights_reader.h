// A model's values out of a checkpoint or a file: for evaluations and predictions with other weights than a job's
// present ones.
//
// A free function, blocking; any thread.
#pragma once

#include <string>

#include "common/base/status.h"
#include "common/model/graph.h"
#include "common/tensor/buffer.h"

namespace cairn {

struct ReadWeights {
  Buffer values;     // the whole parameter space
  std::string path;  // what was read: of a directory with several checkpoints the newest whole one
  int64_t step = 0;  // of the checkpoint; a file: 0
};

// path: a checkpoint's directory, one that holds several, or a file of LoadWeights. Every variable of the graph has to
// be there with its shape; what else the file holds is left. Errors: those of the reader; FAILED_PRECONDITION names a
// variable that is missing or has another shape.
absl::StatusOr<ReadWeights> ReadWeightsOf(const Graph& graph, const std::string& path);

}  // namespace cairn
