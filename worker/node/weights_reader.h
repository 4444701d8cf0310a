// Reads a model's values from a checkpoint or a file, for evaluations and predictions with weights other than a job's
// current ones.
//
// A free function, blocking; any thread.
#pragma once

#include <string>

#include "common/base/remote_files.h"
#include "common/base/status.h"
#include "common/model/graph.h"
#include "common/tensor/buffer.h"

namespace cairn {

struct ReadWeights {
  Buffer values;     // the whole parameter space
  std::string path;  // the file or checkpoint that was read; in a directory of several, the newest complete one
  int64_t step = 0;  // of the checkpoint; 0 for a file
};

// path: a checkpoint's directory, a directory of several, or a file that LoadWeights reads. It must hold every variable
// of the graph with its shape; other tensors are ignored. Errors: those of the reader; FAILED_PRECONDITION names a
// variable that is missing or has another shape. remote: null: every path is of this machine.
absl::StatusOr<ReadWeights> ReadWeightsOf(const Graph& graph, const std::string& path, RemoteFiles* remote);

}  // namespace cairn
