// The benchmark's job, whose parameters are pushed and pulled: one dense layer, SGD, one replica.
#pragma once

#include "cairn/v1/cluster.pb.h"
#include "common/base/status.h"

namespace cairn {

struct BenchJobOptions {
  // Size of the parameters (float32), rounded down to a multiple of kBenchBytesUnit.
  int64_t bytes = int64_t{64} << 20;
  int64_t partition_bytes = int64_t{4} << 20;  // per partition, kPartitionBytesMin..kPartitionBytesMax
  bool asynchronous = false;
  bool logged = false;  // the ps keeps every update in its log before it answers
};
inline constexpr int64_t kBenchBytesUnit = int64_t{16} << 10;

// Server and client make the same job from the same options. Errors: INVALID_ARGUMENT names the field.
absl::StatusOr<v1::HostPartitions> MakeBenchJob(const BenchJobOptions& options);

int64_t ParameterBytes(const v1::HostPartitions& job);

}  // namespace cairn
