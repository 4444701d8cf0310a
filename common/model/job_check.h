// Checks a job at submission: every error is found here, before anything is started, and names its field or layer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cairn/v1/job.pb.h"
#include "cairn/v1/job_status.pb.h"
#include "common/base/status.h"
#include "common/model/graph.h"

namespace cairn {

struct CheckedJob {
  v1::JobSpec spec;  // every default filled in, except `replicas`, `partition_bytes`, `backups` where they were not set
  Graph graph;
  std::vector<std::string> warnings;
};

// Checks what depends on the spec alone. Errors: INVALID_ARGUMENT, `field: what is wrong; what to do`, such as
// `optimizer.learning_rate: -1 is not positive; use a number such as 0.001`.
absl::StatusOr<CheckedJob> CheckJob(const v1::JobSpec& spec);

// Checks what depends on the data too: the input's shape, classes against the output, batch size against examples.
absl::Status CheckJobAgainstData(const CheckedJob& job, const v1::DataInfo& data);

// The partition size for a space if the user set none: 4 MiB, or less so that each of `ps` servers has work, and two
// partitions where they are worth it.
int64_t DefaultPartitionBytes(int64_t space_size, int ps);

std::string MetricName(const v1::JobSpec& spec, int metric);  // "accuracy", "top_5_accuracy"

// The metric's value from sums over examples, NaN if there are none. The root of a root mean squared error is taken
// here.
double MetricValue(const v1::JobSpec& spec, int metric, const v1::MetricSums& sums);

}  // namespace cairn
