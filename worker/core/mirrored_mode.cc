#include "worker/core/mirrored_mode.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace cairn::replica {

void MirroredMode::OnAssigned(const std::vector<char>& moved, bool raised) {
  SynchronousMode::OnAssigned(moved, raised);
  if (phase_ == Phase::kRunning) TakeDigestIfDue();  // the step is the last now, or this worker the chief
}

void MirroredMode::ForgetValues() {
  digested_ = 0;
  if (!step_.values.empty() && step_.values.unique()) return;
  if (!step_.values.empty()) context_.pool.Release(std::exchange(step_.values, {}));
  step_.values = context_.pool.Acquire();
}

// The partitions of a job at rest are at s or s + 1, since no replica gets beyond s + 1 before all are there. While the
// job moves, the versions that were pulled may differ by more; then the older ones are pulled again.
void MirroredMode::OnAllFound() {
  const std::vector<uint64_t> versions = finder_.versions();
  const uint64_t lowest = *std::min_element(versions.begin(), versions.end());
  const uint64_t highest = *std::max_element(versions.begin(), versions.end());
  if (lowest == highest) return Run(lowest);
  const bool cut = highest == lowest + 1;
  for (uint32_t p = 0; p < versions.size(); ++p) {
    if (cut ? versions[p] == lowest : versions[p] + 1 >= highest) continue;
    finder_.Again(p, cut ? std::optional<uint64_t>(lowest) : std::nullopt);
  }
}

std::vector<TreeNode> MirroredMode::NodesOf(const std::vector<uint32_t>& held) const {
  if (context_.job.spec.backup_replicas() == 0)
    return MaximalNodes(held, static_cast<uint32_t>(context_.schedule.plan.replicas));
  std::vector<TreeNode> nodes;  // a ps uses the pushes that come first, by replica
  nodes.reserve(held.size());
  for (uint32_t replica : held) nodes.push_back({replica, 1});
  return nodes;
}

// The gradient buffer that holds the sum of the node in the partition's range. The first call adds up.
Buffer& MirroredMode::SumOf(StepPush& push, uint32_t partition) {
  if (push.summed_in[partition] < 0 && push.node.count == 1) {
    replicas_[push.own_begin].touched = true;
    push.summed_in[partition] = 0;
  }
  if (push.summed_in[partition] < 0) {
    const Part& part = context_.assignment.parts[partition];
    std::vector<GradientSum> leaves(push.node.count);
    for (uint32_t i = 0; i < push.node.count; ++i) {
      OwnReplica& own = replicas_[push.own_begin + i];
      own.touched = true;
      if (own.examples == 0) continue;
      leaves[i] = {own.gradient.mutable_floats().subspan(part.range.begin(), part.numbers()), own.examples};
    }
    const GradientSum sum = SumSubtree(push.node, leaves, context_.frames.RoundingOf(partition, step_.number));
    for (uint32_t i = 0; i < push.node.count; ++i) {
      if (leaves[i].gradient.data() == sum.gradient.data()) push.summed_in[partition] = static_cast<int32_t>(i);
    }
    CAIRN_CHECK(push.summed_in[partition] >= 0, "the sum is in one of the leaves");
  }
  return replicas_[push.own_begin + push.summed_in[partition]].gradient;
}

Frame MirroredMode::MakePush(StepPush& push, uint32_t partition) {
  const Buffer gradient = push.examples > 0 ? SumOf(push, partition) : Buffer();
  const bool packed =
      push.examples > 0 && replicas_[push.own_begin + static_cast<size_t>(push.summed_in[partition])].joint != nullptr;
  return context_.frames.MakePush(partition, push.node, step_.number, push.examples, gradient, packed);
}

absl::Status MirroredMode::CheckAnswer(const Frame& frame, uint32_t partition) const {
  return context_.frames.CheckValues(frame, partition);
}

void MirroredMode::TakeValues(const Frame& frame) {
  if (next_.empty()) next_ = context_.pool.Acquire();
  context_.frames.CopyValues(frame, next_);
}

void MirroredMode::OnStepDone() { context_.pool.Release(std::exchange(step_.values, std::exchange(next_, {}))); }

// Each job's initial values are known; a digest of them would tell nothing.
void MirroredMode::TakeDigestIfDue() {
  const int64_t every = context_.job.digest_every, step = step_.number;
  if (!context_.assignment.chief || every <= 0 || step == digested_) return;
  if (step % every != 0 && step != context_.schedule.plan.total_steps) return;
  digested_ = step;
  context_.output.Emit(TakeDigest{step, step_.values});
}

void MirroredMode::OnPushFailed(StepPush& push, uint32_t partition, const absl::Status& status) {
  context_.requests.Retry(push.requests[partition], partition, status);
}

}  // namespace cairn::replica
