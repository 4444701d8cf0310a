// What `cairn submit --dry-run` says of a job that was checked and not submitted.
#pragma once

#include <string>

#include "cairn/v1/cluster.pb.h"

namespace cairn {

// job: resolved, with its steps and partitions where the data is known (JobClient::Check). Memory is by the formulas of
// docs/operating/capacity.md, without activations and the cache of the data.
std::string DryRunText(const v1::JobStatus& job);
// {"name", "would_wait_for", "parameters", ..., "warnings", "spec"}
std::string DryRunJson(const v1::SubmitResponse& checked);

}  // namespace cairn
