// IndependentMode: the pulls of a unit that does not know its step, or that another worker has overtaken.
#include <algorithm>
#include <utility>

#include "worker/core/independent_mode.h"

namespace cairn::replica {

void IndependentMode::StartPull(Unit& unit, absl::Duration pause) {
  Release(unit);
  unit.state = Unit::State::kPulling;
  unit.step = -1;
  unit.current.buffer = context_.pool.Acquire();
  const size_t partitions = context_.assignment.parts.size();
  unit.pulled.clear();
  for (const Exchange& exchange : unit.exchanges) unit.pulled.push_back(exchange.sequence);
  unit.exchanges.assign(partitions, Exchange());
  unit.answered = 0;
  for (uint32_t p = 0; p < partitions; ++p) {
    if (pause > absl::ZeroDuration()) {
      context_.requests.RetryAfter(unit.exchanges[p].request, pause);
    } else {
      SendAgain(unit, p);
    }
  }
}

void IndependentMode::OnPullReply(Unit& unit, uint32_t partition, Reply& reply) {
  const absl::Status status =
      reply.frame.ok() ? context_.frames.CheckValues(*reply.frame, partition) : reply.frame.status();
  if (!status.ok()) {
    context_.requests.Retry(unit.exchanges[partition].request, partition, status);
    return;
  }
  unit.exchanges[partition].request = Request();
  context_.frames.CopyValues(*reply.frame, unit.current.buffer);
  if (partition == 0) unit.current.loss_scale = reply.frame->loss_scale;
  unit.exchanges[partition].version = reply.frame->version;
  unit.exchanges[partition].sequence = reply.frame->sequence;
  unit.exchanges[partition].answered = 1;
  if (++unit.answered == context_.assignment.parts.size()) OnAllPulled(unit);
}

void IndependentMode::OnAllPulled(Unit& unit) {
  std::vector<uint64_t> sequences;
  for (const Exchange& exchange : unit.exchanges) sequences.push_back(exchange.sequence);
  const uint64_t lowest = *std::min_element(sequences.begin(), sequences.end());
  const uint64_t highest = *std::max_element(sequences.begin(), sequences.end());
  if (highest > lowest + 1 && sequences != unit.pulled) {
    // Another worker still computes this replica, and some partitions have its push while others do not. Or the job was
    // resumed from a checkpoint whose partitions were not cut at the same moment: then the next pull finds the same.
    StartPull(unit, context_.backoff.Pause(unit.pull_attempts++));
    return;
  }
  if (highest > static_cast<uint64_t>(context_.schedule.plan.total_steps)) {
    context_.output.Fail("a replica has had more updates than the job has steps; drop the job and submit it again");
    return;
  }
  const bool bounded = context_.job.spec.has_staleness_bound() && context_.job.spec.staleness_bound() > 0;
  if (bounded && lowest > unit.clock) {
    // Now that the clock is known, pull again: the ps answer once the units that are far behind have caught up.
    unit.clock = lowest;
    StartPull(unit, absl::ZeroDuration());
    return;
  }
  unit.pull_attempts = 0;
  unit.step = static_cast<int64_t>(lowest);
  for (const Member& member : unit.members) {
    context_.reports.Forget(member.id, unit.step, context_.schedule.plan.steps_per_epoch);
  }
  Checkpoint();
  BeginStep(unit);
}

}  // namespace cairn::replica
