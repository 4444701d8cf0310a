// Flags shared by `cairn evaluate` and `cairn predict`: the weights and the examples.
#pragma once

#include <string>

#include "cairn/v1/cluster.pb.h"
#include "common/base/status.h"

namespace cairn {

struct EvaluateOptions {
  std::string job;
  std::string split;    // empty: test, or the only split of `data`
  std::string weights;  // path of a checkpoint or file on the workers; empty: the job's current weights
  std::string data;     // path of another data set on the workers; empty: the job's
};

// Empty: unspecified. Errors: INVALID_ARGUMENT names the flag.
absl::StatusOr<v1::Split> ParseSplit(const std::string& text);

// Another data set is read with the job's data settings (columns, image size, features), but its format is detected
// and no examples are set aside. Relative paths are resolved in the working directory if they exist there.
absl::StatusOr<v1::EvaluateRequest> EvaluateRequestOf(const v1::JobStatus& job, v1::Split split,
                                                      const EvaluateOptions& options);

// The split that an answer is of. Tells on standard error where it was chosen because the data have no other.
v1::Split TellSplit(const EvaluateOptions& options, v1::Split answered);

}  // namespace cairn
