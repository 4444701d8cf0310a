// The coordinator's HostPartitions, as a ps takes it: checked before anything of its size is made.
//
//   input := alteration* (of a right one)
#include "server/core/partition_core.h"
#include "server/storage/persistence.h"
#include "tests/fuzz/alter.h"
#include "tests/fuzz/partition_seed.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cairn;
  ByteSource in(data, size);
  v1::HostPartitions host;
  host.set_job_id(3);
  host.set_generation(5);
  const absl::StatusOr<CheckedJob> job = CheckJob(SmallJob(in.Below(2) == 1));
  *host.mutable_spec() = job->spec;
  for (uint32_t i = 0; i < 3; ++i) {
    v1::PartitionRange& range = *host.add_partitions();
    range.set_partition(i);
    range.set_begin(i * 64);
    range.set_end((i + 1) * 64);
  }
  while (!in.empty()) Alter(in, &host);

  const std::unique_ptr<KvStore> store = NewMemoryKvStore();
  Persistence persistence(*store);
  MustBeOk(persistence.SetHostedJob(host));
  const auto jobs = persistence.ListHostedJobs();
  CAIRN_CHECK(jobs.ok() && jobs->size() == 1 && jobs->front().SerializeAsString() == host.SerializeAsString(), "list");
  absl::StatusOr<Graph> graph = Graph::Build(host.spec().model());
  if (!graph.ok()) return 0;
  const auto shared = std::make_shared<const Graph>(*std::move(graph));
  for (const v1::PartitionRange& range : host.partitions()) {
    const auto config = MakePartitionConfig(host.spec(), shared, range, JobId(3), Generation(5));
    if (!config.ok() || config->size() > (1 << 20)) continue;
    PartitionCore core(*config, PartitionState::Initial(*config));
    (void)persistence.Recover(*config);
  }
  return 0;
}
