#include "worker/core/checkpoint_turns.h"

#include <algorithm>
#include <utility>

namespace cairn::replica {

void CheckpointTurns::BeginJob(const v1::JobSpec& spec, int64_t restored) {
  const StepPlan& plan = schedule_.plan;
  if (!rule_) rule_.emplace(spec, plan.steps_per_epoch, plan.total_steps, restored, output_.now());
}

void CheckpointTurns::TakeIfDue(int64_t step, std::optional<uint64_t> want_version) {
  if (!assignment_.chief || turn_ || output_.failed() || !rule_->Due(step, output_.now())) return;
  if (output_.now() < next_cut_) return output_.WakeBy(next_cut_);
  TakeCheckpoint take;
  take.number = ++numbers_.checkpoints;
  take.step = step;
  take.last_try = step == schedule_.plan.total_steps && output_.now() - last_cut_fails_since_ >= last_cut_max_;
  for (uint32_t p = 0; p < assignment_.parts.size(); ++p) {
    Frame frame;
    frame.kind = v1::ExchangeFrame::SNAPSHOT;
    frame.job = assignment_.job;
    frame.partition = PartitionId(p);
    frame.generation = assignment_.generation;
    frame.want_version = want_version;
    take.requests.push_back({assignment_.parts[p].address, std::move(frame)});
  }
  turn_ = Turn{step, take.last_try};
  output_.Emit(std::move(take));
}

bool CheckpointTurns::End(const CheckpointDone& event) {
  if (!turn_ || event.number != numbers_.checkpoints) return false;
  const bool last = turn_->step == schedule_.plan.total_steps;  // there is no later step to try it at
  if (event.outcome != CheckpointDone::Outcome::kNoCut || turn_->last_try) {
    rule_->Taken(turn_->step, output_.now());
    cuts_failed_ = 0;
    last_cut_fails_since_ = absl::InfiniteFuture();
  } else {
    if (last) last_cut_fails_since_ = std::min(last_cut_fails_since_, output_.now());
    next_cut_ = output_.now() + backoff_.Pause(cuts_failed_++);
    output_.WakeBy(next_cut_);  // no step may come at which it would be tried again
  }
  turn_.reset();
  return true;
}

bool CheckpointTurns::Owed() const {
  return turn_ || (assignment_.chief && rule_->Due(schedule_.plan.total_steps, output_.now()));
}

}  // namespace cairn::replica
