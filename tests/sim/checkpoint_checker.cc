// CheckpointChecker: what a job's checkpoints contain.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tests/sim/checkers.h"

namespace cairn::sim {

bool CheckpointChecker::Same(uint32_t partition, absl::Span<const float> whole, absl::Span<const float> part) const {
  const v1::PartitionRange& range = facts_.ranges[partition];
  for (uint64_t i = range.begin(); i < range.end(); ++i) {
    if (!facts_.reference->IsVariable(static_cast<int64_t>(i))) continue;
    if (std::memcmp(&whole[i], &part[i - range.begin()], sizeof(float)) != 0) return false;
  }
  return true;
}

// The manifest has a number for each replica; the replicas of a group are one unit for the ps.
std::vector<uint64_t> CheckpointChecker::OfUnits(const std::vector<uint64_t>& of_replicas) const {
  std::vector<uint64_t> of_units;
  for (size_t r = 0; r < of_replicas.size(); r += static_cast<size_t>(facts_.group)) of_units.push_back(of_replicas[r]);
  return of_units;
}

void CheckpointChecker::Written(const std::string& path, const CheckpointContents& contents) {
  const CheckpointManifest& m = contents.manifest;
  if (m.partitions.size() != facts_.ranges.size() || m.synchronous != facts_.synchronous || m.step < 0 ||
      m.step > facts_.plan.total_steps) {
    return world_.Fail(
        absl::StrFormat("checkpoint: %s has %d partitions and step %d; the job has %d partitions and %d steps", path,
                        m.partitions.size(), m.step, facts_.ranges.size(), facts_.plan.total_steps));
  }
  for (uint32_t p = 0; p < m.partitions.size(); ++p) WrittenPartition(path, p, contents);
}

void CheckpointChecker::WrittenPartition(const std::string& path, uint32_t partition,
                                         const CheckpointContents& contents) {
  const CheckpointPartition& p = contents.manifest.partitions[partition];
  const v1::PartitionRange& range = facts_.ranges[partition];
  const auto part = [&](const Buffer& whole) {
    return whole.floats().subspan(static_cast<size_t>(range.begin()), static_cast<size_t>(range.end() - range.begin()));
  };
  const auto wrong = [&](const char* what) {
    world_.Fail(absl::StrFormat("checkpoint: %s of step %d: %s of partition %d, version %d, are not what the job had",
                                path, contents.manifest.step, what, partition, p.version));
  };
  const absl::Span<const float> values = part(contents.values);
  if (!facts_.synchronous) {
    const std::vector<uint64_t> sequences = OfUnits(p.sequences);
    const float sum = facts_.reference->Sum(sequences);
    for (uint64_t i = range.begin(); i < range.end(); ++i) {
      if (facts_.reference->IsVariable(static_cast<int64_t>(i)) && values[i - range.begin()] != sum)
        return wrong("values");
    }
    const uint64_t updates = std::accumulate(sequences.begin(), sequences.end(), uint64_t{0});
    if (updates != p.version) wrong("sequence numbers");
    return;
  }
  if (p.version != static_cast<uint64_t>(contents.manifest.step)) return wrong("updates");
  const absl::Span<const float> moments = contents.slots.empty() ? absl::Span<const float>() : part(contents.slots[0]);
  if (facts_.subsets != nullptr) {
    if (!facts_.subsets->Allows(partition, p.version, values, moments)) wrong("values or slots");
    return;
  }
  if (!Same(partition, facts_.reference->AfterSteps(p.version), values)) return wrong("values");
  if (!moments.empty() && !Same(partition, facts_.reference->MomentsAfter(p.version), moments)) wrong("slots");
}

void CheckpointChecker::Restored(const Copy& copy, const std::string& path, const CheckpointContents& contents) {
  const CheckpointManifest& m = contents.manifest;
  bool same = Same(copy.partition, contents.values.floats(), copy.dense().values().floats());
  for (size_t i = 0; i < contents.slots.size(); ++i) {
    same = same && Same(copy.partition, contents.slots[i].floats(), copy.dense().slots()[i].floats());
  }
  std::vector<uint64_t> sequences(static_cast<size_t>(facts_.spec.replicas()), static_cast<uint64_t>(m.step));
  if (!facts_.synchronous && copy.partition < m.partitions.size())
    sequences = OfUnits(m.partitions[copy.partition].sequences);
  if (same && sequences == copy.state.sequences) return;
  world_.Fail(absl::StrFormat("checkpoint: %s, partition %d is not as in %s of step %d: version %d [%s]%s", copy.ps,
                              copy.partition, path, m.step, copy.state.version,
                              absl::StrJoin(copy.state.sequences, ","), same ? "" : ", other numbers"));
}

void CheckpointChecker::Removed(const std::string& path, const CheckpointDirectory& left) {
  if (left.stored().empty()) world_.Fail(absl::StrFormat("checkpoint: %s is removed, and no other is there", path));
}

void CheckpointChecker::AtEnd(const v1::JobStatus& status, const CheckpointDirectory& directory) {
  if (!facts_.spec.has_checkpoints() || directory.failed_writes() > 0 || !status.checkpoint_error().empty()) return;
  for (const auto& [path, checkpoint] : directory.stored()) {
    // In an asynchronous job, the chief takes it when its own replicas are done.
    if (!facts_.synchronous || checkpoint->contents.manifest.step == facts_.end.steps) return;
  }
  world_.Fail(absl::StrFormat("checkpoint: the job is over, and there is none of its last step, %d", facts_.end.steps));
}

}  // namespace cairn::sim
