// One partition of the small job (job_seed.h) for the targets of the ps.
#pragma once

#include <memory>

#include "common/base/check.h"
#include "common/model/graph.h"
#include "common/model/job_check.h"
#include "server/core/partition_config.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/job_seed.h"

namespace cairn {

// mode:u8 (0 synchronous, 1 asynchronous, 2 bounded staleness; and momentum, or clipping by norm and a moving average,
// or a loss scale). Built once for each.
inline const PartitionConfig& SmallPartition(ByteSource& in) {
  static PartitionConfig configs[9];
  const size_t n = in.Below(9);
  PartitionConfig& config = configs[n];
  if (config.replicas == 1) {  // not built yet: the job has two
    v1::JobSpec spec = SmallJob(n % 3 != 0);
    if (n % 3 == 2) spec.set_staleness_bound(1);
    if (n >= 6) {
      spec.set_compute_dtype(v1::FLOAT16);
      spec.mutable_loss_scaling()->set_dynamic_growth_steps(2);
    } else if (n >= 3) {
      spec.mutable_optimizer()->mutable_sgd()->clear_momentum();
      spec.mutable_optimizer()->set_global_clipnorm(1);
      spec.mutable_optimizer()->mutable_ema();
    }
    const absl::StatusOr<CheckedJob> job = CheckJob(spec);
    MustBeOk(job.status());
    v1::PartitionRange range;
    range.set_partition(7);
    range.set_begin(64);
    range.set_end(128);
    auto built =
        MakePartitionConfig(job->spec, std::make_shared<const Graph>(job->graph), range, JobId(3), Generation(5));
    MustBeOk(built.status());
    config = *std::move(built);
    config.image.log_bytes_min = 1024;  // images after a few updates
    config.image.log_to_image_ratio = 1;
  }
  return config;
}

}  // namespace cairn
