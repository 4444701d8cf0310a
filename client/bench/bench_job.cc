#include "client/bench/bench_job.h"

#include "absl/strings/str_format.h"
#include "client/limits.h"
#include "common/base/limits.h"
#include "common/model/graph.h"
#include "common/model/partition_cut.h"

namespace cairn {
namespace {

constexpr int kInputs = 255;  // each unit of the layer has this many weights and a bias: 1 KiB

}  // namespace

absl::StatusOr<v1::HostPartitions> MakeBenchJob(const BenchJobOptions& options) {
  if (options.bytes < kBenchBytesUnit || options.bytes > kBenchBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrFormat("bytes %d: must be %d to %d", options.bytes, kBenchBytesUnit, kBenchBytesMax));
  }
  const int64_t unit = kSpaceAlignment * 4;
  if (options.partition_bytes < kPartitionBytesMin || options.partition_bytes > kPartitionBytesMax ||
      options.partition_bytes % unit != 0) {
    return absl::InvalidArgumentError(absl::StrFormat("partition_bytes %d: must be a multiple of %d from %d to %d",
                                                      options.partition_bytes, unit, kPartitionBytesMin,
                                                      kPartitionBytesMax));
  }
  v1::HostPartitions job;
  job.set_job_id(1);
  job.set_generation(1);
  v1::JobSpec* spec = job.mutable_spec();
  spec->set_name("bench");
  spec->mutable_model()->add_layers()->mutable_input()->add_shape(kInputs);
  const int64_t units = options.bytes / kBenchBytesUnit * kBenchBytesUnit / ((kInputs + 1) * 4);
  spec->mutable_model()->add_layers()->mutable_dense()->set_units(static_cast<int32_t>(units));
  spec->mutable_optimizer()->mutable_sgd();
  spec->mutable_optimizer()->set_learning_rate(0.01f);
  spec->set_replicas(1);
  spec->set_strategy(options.asynchronous ? v1::PARAMETER_SERVER : v1::MULTI_WORKER_MIRRORED);
  spec->set_durability(options.logged ? v1::LOGGED : v1::SNAPSHOT);
  CAIRN_ASSIGN_OR_RETURN(const Graph graph, Graph::Build(spec->model()));
  for (const auto& range : CutPartitions(graph, spec->optimizer(), options.partition_bytes))
    *job.add_partitions() = range;
  if (static_cast<uint32_t>(job.partitions_size()) > kPartitionsMax) {
    return absl::InvalidArgumentError(absl::StrFormat("partition_bytes %d: %d partitions, at most %d",
                                                      options.partition_bytes, job.partitions_size(), kPartitionsMax));
  }
  return job;
}

int64_t ParameterBytes(const v1::HostPartitions& job) {
  return static_cast<int64_t>(job.partitions().rbegin()->end()) * 4;
}

}  // namespace cairn
