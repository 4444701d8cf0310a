// A valid manifest for the small job (job_seed.h), and the end of its text.
#pragma once

#include <algorithm>
#include <string_view>

#include "common/model/job_check.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/job_seed.h"
#include "worker/checkpoint/checkpoint_manifest.h"

namespace cairn {

inline constexpr std::string_view kManifestSeal = ",\n \"xxh3_128\": \"";  // the checksum is the last field
inline constexpr std::string_view kManifestEnd = "\n}\n";

inline const CheckpointManifest& SmallManifest(bool synchronous) {
  static CheckpointManifest manifests[2];
  CheckpointManifest& m = manifests[synchronous];
  if (!m.partitions.empty()) return m;
  const absl::StatusOr<CheckedJob> job = CheckJob(SmallJob(!synchronous));
  MustBeOk(job.status());
  m.library_version = "0.1.0";
  m.job_id = 3;
  m.spec = job->spec;
  m.synchronous = synchronous;
  m.step = 4;
  if (!synchronous) m.replica_step = {4, 5};
  m.steps_per_epoch = 5;
  m.total_steps = 10;
  m.train_examples = 40;
  for (uint64_t begin = 0; begin < static_cast<uint64_t>(job->graph.space_size()); begin += 64) {
    const uint64_t end = std::min<uint64_t>(begin + 64, static_cast<uint64_t>(job->graph.space_size()));
    m.partitions.push_back({begin, end, synchronous ? 4u : 9u, {}});
    if (!synchronous) m.partitions.back().sequences = {4, 5};
  }
  m.files[kModelFile] = {100, std::string(32, '0')};
  m.files[kOptimizerFile] = {200, std::string(32, 'f')};
  return m;
}

}  // namespace cairn
