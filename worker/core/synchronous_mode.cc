#include "worker/core/synchronous_mode.h"

#include <algorithm>
#include <utility>

namespace cairn::replica {

void SynchronousMode::OnAssigned(const std::vector<char>& moved, bool raised) {
  AssignReplicas();
  if (replicas_.empty()) return GoIdle();
  if (phase_ == Phase::kIdle) return StartFinding(absl::ZeroDuration());
  if (phase_ == Phase::kFinding) return finder_.Resend(moved, raised);
  pushes_.ResendClips(moved, raised);
  Resend(moved, raised);
  OpenGate();
  FinishStepIfDone();  // it may have waited for a replica that has moved to another worker
}

void SynchronousMode::AssignReplicas() {
  for (OwnReplica& gone : replicas_.Assign()) {
    context_.reports.Remove(gone.id);
    Release(gone);
  }
  context_.pool.Resize(context_.job.space_bytes, replicas_.size() + spares_);
  if (phase_ != Phase::kRunning) return;
  if (step_.number == context_.schedule.LastOpen()) Checkpoint();  // the former chief may not have taken it
  for (OwnReplica& own : replicas_) {
    if (own.state == OwnReplica::State::kIdle) replicas_.Begin(own);
  }
  pushes_.Build();
}

void SynchronousMode::GoIdle() {
  phase_ = Phase::kIdle;
  finder_.Stop();
  pushes_.Stop();
  DropValues();
  context_.pool.Resize(0, 0);
}

void SynchronousMode::OnReply(RequestName name, Reply& reply) {
  if (name.partition >= context_.assignment.parts.size()) return;
  if (phase_ == Phase::kFinding && name.owner == kValuesOwner) return OnFindReply(name.partition, reply);
  if (phase_ != Phase::kRunning) return;
  if (name.owner == kValuesOwner) return OnValues(name.partition, reply);
  switch (pushes_.OnReply(name, reply)) {
    case StepPushes::Answer::kIgnored: return;
    case StepPushes::Answer::kGone: return FindAgain();
    case StepPushes::Answer::kBeyond: return StartFinding(absl::ZeroDuration());
    case StepPushes::Answer::kUpdated: break;
  }
  TakeValues(*reply.frame);
  FinishStepIfDone();
}

// ---- finding the step that the partitions are at ----

void SynchronousMode::StartFinding(absl::Duration pause) {
  for (OwnReplica& own : replicas_) Release(own);
  phase_ = Phase::kFinding;
  pushes_.Stop();
  ForgetValues();
  finder_.Start(pause);
}

void SynchronousMode::FindAgain() { StartFinding(finder_.NextPause()); }

void SynchronousMode::OnFindReply(uint32_t partition, Reply& reply) {
  switch (finder_.OnReply(partition, reply)) {
    case StepFinder::Answer::kIgnored: return;
    case StepFinder::Answer::kGone: return FindAgain();
    case StepFinder::Answer::kFound: break;
  }
  OnFound(*reply.frame);
  if (finder_.all_found()) OnAllFound();
}

void SynchronousMode::Run(uint64_t version) {
  if (version > static_cast<uint64_t>(context_.schedule.plan.total_steps)) {
    context_.output.Fail(
        "the variables have had more updates than the job has steps; drop the job and submit it again");
    return;
  }
  step_.number = static_cast<int64_t>(version);
  phase_ = Phase::kRunning;
  step_.loss_scale = finder_.LossScaleAt(version).value_or(step_.loss_scale);  // at least one partition is at it
  for (const OwnReplica& own : replicas_) {
    context_.reports.Forget(own.id, step_.number, context_.schedule.plan.steps_per_epoch);
  }
  BeginStep();
}

// ---- running ----

// Takes the checkpoint of the version that this step leads to: no partition can be beyond it, since it needs own pushes
// that are still to be sent. If slow pushes are dropped, it is one step later. After the last step it is the current
// one.
void SynchronousMode::Checkpoint() {
  const int64_t ahead = context_.job.spec.backup_replicas() > 0 ? 2 : 1;
  const int64_t version = std::min(step_.number + ahead, context_.schedule.LastOpen());
  context_.checkpoints.TakeIfDue(version, static_cast<uint64_t>(version));
}

void SynchronousMode::OnCheckpointDone() {
  if (phase_ == Phase::kRunning && step_.number == context_.schedule.LastOpen()) Checkpoint();
}

// Continues the replicas that waited, once their epoch is open or the job has ended.
void SynchronousMode::OpenGate() {
  if (phase_ != Phase::kRunning || context_.schedule.AtGate(step_.number) || !replicas_.AnyWaiting()) return;
  Checkpoint();
  for (OwnReplica& own : replicas_) {
    if (own.state == OwnReplica::State::kWaiting) replicas_.Compute(own);
  }
  pushes_.SendAllReady();
}

void SynchronousMode::BeginStep() {
  Checkpoint();
  OnStepBegins();
  pushes_.Begin();
  replicas_.Join(NodesOf(replicas_.Numbers()));
  for (OwnReplica& own : replicas_) replicas_.Begin(own);
  pushes_.Build();
}

void SynchronousMode::OnGradient(const GradientReady& event) {
  OwnReplica* own = replicas_.Find(event.work);
  if (own == nullptr || own->state != OwnReplica::State::kComputing) return;
  const uint32_t end = std::min<uint32_t>(event.partition_end, context_.assignment.parts.size());
  for (uint32_t p = event.partition_begin; p < end; ++p) own->ready[p] = 1;
  pushes_.PushFinal(*own, event.partition_begin, end);
}

void SynchronousMode::OnSummed(const GradientSummed& event) {
  if (phase_ == Phase::kRunning) pushes_.OnSummed(event);
}

void SynchronousMode::OnComputed(uint64_t work, BatchSums sums) {
  OwnReplica* own = replicas_.Find(work);
  if (own == nullptr || own->state != OwnReplica::State::kComputing) return;
  own->state = OwnReplica::State::kComputed;
  own->sums = std::move(sums);
  pushes_.PushFinal(*own, kFiguresPartition, kFiguresPartition + 1);
  if (pushes_.AllDone()) {
    FinishStepIfDone();
  } else if (std::exchange(own->again, false)) {
    replicas_.Compute(*own);
  }
}

void SynchronousMode::OnEvaluated(uint64_t work, const BatchSums& sums) {
  OwnReplica* own = replicas_.Find(work);
  if (own == nullptr || own->state != OwnReplica::State::kEvaluating) return;
  context_.AddValidation(own->id, step_.number, sums);
  own->work = 0;
  replicas_.Compute(*own);
  if (own->state == OwnReplica::State::kComputed) pushes_.SendReady(*own);
  FinishStepIfDone();  // the update may have been made without this worker's gradients
}

// The step is done when all partitions are, and no backward pass or validation is running any more: their figures
// belong to the step.
void SynchronousMode::FinishStepIfDone() {
  if (!pushes_.AllDone() || replicas_.AnyAtWork()) return;
  for (OwnReplica& own : replicas_) {
    if (own.state == OwnReplica::State::kComputed) {
      context_.reports.AddStep(own.id, step_.number, context_.schedule.plan.steps_per_epoch, context_.output.now());
    }
    Release(own);
  }
  ++step_.number;
  step_.loss_scale = pushes_.next_loss_scale();
  finder_.EndAttempts();
  OnStepDone();
  BeginStep();
}

void SynchronousMode::ResendDue() {
  if (phase_ == Phase::kFinding) finder_.ResendDue();
  if (phase_ != Phase::kRunning) return;
  if (step_.number == context_.schedule.LastOpen()) Checkpoint();  // there is no later step to try it at
  pushes_.ResendDue();
  ResendMore();
}

}  // namespace cairn::replica
