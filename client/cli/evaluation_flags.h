// What `cairn evaluate` and `cairn predict` have in common: which weights, which examples.
#pragma once

#include <string>

#include "cairn/v1/cluster.pb.h"
#include "common/base/status.h"

namespace cairn {

struct EvaluateOptions {
  std::string job;
  std::string split = "test";
  std::string weights;  // a checkpoint or a file, as the workers see it; empty: the job's present weights
  std::string data;     // another data set than the job's, as the workers see it; empty: the job's
};

// Errors: INVALID_ARGUMENT names the flag.
absl::StatusOr<v1::Split> ParseSplit(const std::string& text);

// Other data are read as the job's data are (columns, picture size, features), with the format recognized from
// what is there and no examples set aside. Relative paths are taken from this folder where they exist here.
absl::StatusOr<v1::EvaluateRequest> EvaluateRequestOf(const v1::JobStatus& job, v1::Split split,
                                                      const EvaluateOptions& options);

}  // namespace cairn
