// The optimizer's part of CheckJob: Keras' defaults filled in, hyper-parameters within their ranges.
#pragma once

#include <string>
#include <vector>

#include "cairn/v1/job.pb.h"
#include "common/base/status.h"

namespace cairn {

// Errors: INVALID_ARGUMENT, `optimizer.adam.beta_1: 1 is outside [0, 1); use a number such as 0.9`.
absl::Status ResolveOptimizer(v1::Optimizer* optimizer, std::vector<std::string>* warnings);

}  // namespace cairn
