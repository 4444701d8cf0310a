// SynchronousMode: finding the step that the partitions are at.
#include "worker/core/synchronous_mode.h"

namespace cairn::replica {

void SynchronousMode::StartFinding(absl::Duration pause) {
  for (Own& own : own_) Release(own);
  phase_ = Phase::kFinding;
  pushes_.clear();
  clips_.Stop();
  ForgetValues();
  finder_.Start(pause);
}

void SynchronousMode::FindAnew() { StartFinding(finder_.NextPause()); }

void SynchronousMode::OnFindReply(uint32_t partition, Reply& reply) {
  switch (finder_.OnReply(partition, reply)) {
    case StepFinder::Answer::kIgnored: return;
    case StepFinder::Answer::kGone: return FindAnew();
    case StepFinder::Answer::kFound: break;
  }
  OnFound(*reply.frame);
  if (finder_.all_found()) OnAllFound();
}

void SynchronousMode::Run(uint64_t version) {
  step_ = static_cast<int64_t>(version);
  if (step_ > context_.plan.total_steps) {
    context_.FailJob("the variables have had more updates than the job has steps; drop the job and submit it again");
    return;
  }
  phase_ = Phase::kRunning;
  loss_scale_ = finder_.LossScaleAt(version).value_or(loss_scale_);  // some partition is there
  for (const Own& own : own_) context_.reports.Forget(own.id, step_, context_.plan.steps_per_epoch);
  BeginStep();
}

}  // namespace cairn::replica
