// IndependentMode: pulls of units that do not know their step, or whose values are outdated.
#include <algorithm>
#include <utility>

#include "worker/core/independent_mode.h"

namespace cairn::replica {

void IndependentMode::StartPull(Own& own, absl::Duration pause) {
  Release(own);
  own.state = Own::State::kPulling;
  own.step = -1;
  own.values = context_.pool.Acquire();
  const size_t partitions = context_.parts.size();
  own.requests.assign(partitions, Request());
  own.versions.assign(partitions, 0);
  own.sequences_before = std::exchange(own.sequences, std::vector<uint64_t>(partitions, 0));
  own.filled.assign(partitions, 0);
  own.filled_count = 0;
  for (uint32_t p = 0; p < partitions; ++p) {
    if (pause > absl::ZeroDuration()) {
      context_.RetryAfter(own.requests[p], pause);
    } else {
      SendAgain(own, p);
    }
  }
}

void IndependentMode::OnPullReply(Own& own, uint32_t partition, Reply& reply) {
  const absl::Status status = reply.frame.ok() ? context_.CheckValues(*reply.frame, partition) : reply.frame.status();
  if (!status.ok()) {
    context_.Retry(own.requests[partition], partition, status);
    return;
  }
  own.requests[partition] = Request();
  context_.CopyValues(*reply.frame, own.values);
  if (partition == 0) own.loss_scale = reply.frame->loss_scale;
  own.versions[partition] = reply.frame->version;
  own.sequences[partition] = reply.frame->sequence;
  own.filled[partition] = 1;
  if (++own.filled_count == context_.parts.size()) OnAllPulled(own);
}

void IndependentMode::OnAllPulled(Own& own) {
  const uint64_t lowest = *std::min_element(own.sequences.begin(), own.sequences.end());
  const uint64_t highest = *std::max_element(own.sequences.begin(), own.sequences.end());
  if (highest > lowest + 1 && own.sequences != own.sequences_before) {
    // Another worker still computes this replica: its pushes have reached some partitions but not others. Or the job
    // resumed from a checkpoint whose partitions were not cut at the same moment; then the next pull gives the same
    // result.
    StartPull(own, context_.Pause(own.pull_attempts++));
    return;
  }
  if (highest > static_cast<uint64_t>(context_.plan.total_steps)) {
    context_.FailJob("a replica has had more updates than the job has steps; drop the job and submit it again");
    return;
  }
  const bool bounded = context_.spec.has_staleness_bound() && context_.spec.staleness_bound() > 0;
  if (bounded && lowest > own.clock) {
    // Its clock is now known: wait for replicas that are far behind, and use the values at that time.
    own.clock = lowest;
    StartPull(own, absl::ZeroDuration());
    return;
  }
  own.pull_attempts = 0;
  own.step = static_cast<int64_t>(lowest);
  for (const Member& member : own.members) {
    context_.reports.Forget(member.id, own.step, context_.plan.steps_per_epoch);
  }
  Checkpoint();
  BeginStep(own);
}

}  // namespace cairn::replica
