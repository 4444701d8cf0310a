#include "worker/core/synchronous_mode.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace cairn::replica {

void SynchronousMode::OnAssigned(const std::vector<char>& moved, bool raised) {
  SetReplicas();
  if (own_.empty()) return GoIdle();
  if (phase_ == Phase::kIdle) return StartFinding(absl::ZeroDuration());
  if (phase_ == Phase::kFinding) return finder_.Resend(moved, raised);
  for (uint32_t p = 0; p < clips_.partitions(); ++p) {
    if (moved[p] && clips_.Has(p) && !done_[p]) {
      SumLost(p);  // it was the former primary's
    } else {
      clips_.Resend(p, moved[p] != 0, raised);
    }
  }
  Resend(moved, raised);
  OpenGate();
  // The step may have waited for a replica that is another worker's now.
  if (AllDone()) FinishStep();
}

// Own replicas become those of the assignment; what they share with the former ones goes on.
void SynchronousMode::SetReplicas() {
  std::vector<Own> former = std::exchange(own_, {});
  for (int32_t replica : context_.replicas) {
    const auto same = std::find_if(former.begin(), former.end(), [&](const Own& o) { return o.id.value == replica; });
    if (same != former.end()) {
      own_.push_back(std::move(*same));
      former.erase(same);
    } else {
      own_.emplace_back().id = ReplicaId(replica);
    }
  }
  for (Own& gone : former) {
    context_.reports.Remove(gone.id);
    Release(gone);
  }
  context_.pool.Resize(context_.space_bytes, own_.size() + spares_);
  if (phase_ != Phase::kRunning) return;
  if (step_ == context_.LastOpen()) Checkpoint();  // the last chief may not have come to it
  for (Own& own : own_) {
    if (own.state == Own::State::kIdle) StartOwn(own);
  }
  BuildPushes();
}

void SynchronousMode::GoIdle() {
  phase_ = Phase::kIdle;
  finder_.Stop();
  pushes_.clear();
  clips_.Stop();
  DropValues();
  context_.pool.Resize(0, 0);
}

void SynchronousMode::Release(Own& own) {
  if (!own.gradient.empty()) context_.pool.Release(std::exchange(own.gradient, {}));
  own.work = 0;
  own.joint = nullptr;
  own.state = Own::State::kIdle;
  own.touched = own.anew = false;
}

// ---- running ----

// The version that this step leads to: our own push, which comes later, is needed for it, so that no partition is
// beyond. Where slow pushes are dropped another step is between. After the last step: what there is.
void SynchronousMode::Checkpoint() {
  const int64_t ahead = context_.spec.backup_replicas() > 0 ? 2 : 1;
  const int64_t version = std::min(step_ + ahead, context_.LastOpen());
  context_.CheckpointIfDue(version, static_cast<uint64_t>(version));
}

void SynchronousMode::OnCheckpointDone() {
  if (phase_ == Phase::kRunning && step_ == context_.LastOpen()) Checkpoint();
}

// An epoch was opened, or is the last one: on with what waits for it.
void SynchronousMode::OpenGate() {
  const auto waits = [](const Own& own) { return own.state == Own::State::kWaiting; };
  if (phase_ != Phase::kRunning || context_.AtGate(step_) || std::none_of(own_.begin(), own_.end(), waits)) return;
  Checkpoint();
  for (Own& own : own_) {
    if (waits(own)) StartCompute(own);
  }
  for (Push& push : pushes_) PushReady(push);
}

void SynchronousMode::BeginStep() {
  Checkpoint();
  done_.assign(context_.parts.size(), 0);
  done_count_ = 0;
  clips_.Begin(step_);
  MakeJoints();
  for (Own& own : own_) StartOwn(own);
  pushes_.clear();
  BuildPushes();
}

void SynchronousMode::StartOwn(Own& own) {
  own.ready.assign(context_.parts.size(), 0);
  own.examples =
      step_ < context_.plan.total_steps ? static_cast<uint64_t>(context_.plan.Places(step_, own.id).size()) : 0;
  own.work = context_.StartEvaluation(own.id, step_, values_, by_layer_);
  if (own.work == 0) return StartCompute(own);
  own.state = Own::State::kEvaluating;
  OnWorkBegins(own.work);
}

// Who calls it pushes what is ready: without examples there is nothing to compute.
void SynchronousMode::StartCompute(Own& own) {
  own.touched = false;
  if (step_ == context_.plan.total_steps) {
    own.state = Own::State::kFinished;
    context_.Finish(own.id);
    return;
  }
  if (context_.AtGate(step_)) {
    own.state = Own::State::kWaiting;
    own.work = 0;
    return;
  }
  if (own.examples == 0) {
    own.state = Own::State::kComputed;
    own.sums = BatchSums{0, 0, std::vector<double>(context_.spec.metrics_size())};
    own.ready.assign(context_.parts.size(), 1);
    return;
  }
  own.state = Own::State::kComputing;
  own.ready.assign(context_.parts.size(), 0);
  own.work = context_.NewWork();
  OnWorkBegins(own.work);
  own.touched = own.joint != nullptr;
  if (own.joint == nullptr) {
    if (!own.gradient.empty()) context_.pool.Release(std::exchange(own.gradient, {}));
    own.gradient = context_.pool.Acquire();
  }
  context_.effects.emplace_back(Compute{own.work, own.id, step_, values_,
                                        own.joint == nullptr ? own.gradient : Buffer(), by_layer_, loss_scale_,
                                        own.joint});
}

std::vector<TreeNode> SynchronousMode::OwnNodes() const {
  std::vector<uint32_t> held;
  for (const Own& own : own_) held.push_back(static_cast<uint32_t>(own.id.value));
  return NodesOf(held);
}

// Only for a step that all own replicas begin together: who comes later, or computes again, brings a gradient of its
// own.
void SynchronousMode::MakeJoints() {
  if (!joins()) return;
  size_t begin = 0;
  for (const TreeNode& node : OwnNodes()) {
    const std::shared_ptr<const Joint> joint = context_.MakeJoint(node, step_, context_.wire);
    bool first = true;
    for (uint32_t i = 0; joint != nullptr && i < node.count; ++i) {
      if (!joint->leaves[i]) continue;
      own_[begin + i].joint = joint;
      if (std::exchange(first, false)) own_[begin + i].gradient = joint->gradient;
    }
    begin += node.count;
  }
}

// The pushes of this step for the present own replicas. Nodes that were there before keep what they sent.
void SynchronousMode::BuildPushes() {
  if (step_ == context_.plan.total_steps) return;
  std::vector<Push> former = std::exchange(pushes_, {});
  std::vector<size_t> anew;  // own replicas whose gradient was used in a sum that is not wanted any more
  size_t begin = 0;
  for (const TreeNode& node : OwnNodes()) {
    const auto same = std::find_if(former.begin(), former.end(), [&](const Push& p) { return p.node == node; });
    if (same != former.end()) {
      pushes_.push_back(std::move(*same));
    } else {
      Push& push = pushes_.emplace_back();
      push.node = node;
      push.requests.resize(context_.parts.size());
      push.summed_in.assign(context_.parts.size(), -1);
      for (size_t i = begin; i < begin + node.count; ++i) {
        push.examples += own_[i].examples;
        const bool joined = own_[i].joint != nullptr && own_[i].joint->node == node;
        if (!joined) own_[i].joint = nullptr;
        if (own_[i].touched && !joined) anew.push_back(i);
      }
    }
    pushes_.back().own_begin = begin;
    begin += node.count;
  }
  for (size_t i : anew) StartCompute(own_[i]);
  for (Push& push : pushes_) PushReady(push);
}

void SynchronousMode::PushReady(Push& push) {
  for (uint32_t p = 0; p < context_.parts.size(); ++p) TryPush(push, p);
}

void SynchronousMode::TryPush(Push& push, uint32_t partition) {
  if (done_[partition] || clips_.Has(partition) || push.requests[partition].state != Request::State::kIdle) return;
  for (size_t i = push.own_begin; i < push.own_begin + push.node.count; ++i) {
    const bool computing = own_[i].state == Own::State::kComputing && partition != kFiguresPartition;
    if (!computing && own_[i].state != Own::State::kComputed) return;
    if (!own_[i].ready[partition]) return;
  }
  SendPush(push, partition);
}

void SynchronousMode::SendPush(Push& push, uint32_t partition) {
  Frame frame = MakePush(push, partition);
  frame.loss_scale = loss_scale_;
  if (partition == kFiguresPartition) {
    const auto sums = [&](uint32_t i) -> const BatchSums& { return own_[push.own_begin + i].sums; };
    frame.figures = context_.FiguresOf(push.node, step_, sums).SerializeAsString();
  }
  context_.SendRequest(push.requests[partition], push.node.first + 1, std::move(frame));
}

void SynchronousMode::OnGradient(const GradientReady& event) {
  Own* own = FindWork(event.work);
  if (own == nullptr || own->state != Own::State::kComputing) return;
  const uint32_t end = std::min<uint32_t>(event.partition_end, context_.parts.size());
  for (uint32_t p = event.partition_begin; p < end; ++p) own->ready[p] = 1;
  PushFinal(*own, event.partition_begin, end);
}

// Of a replica that computes: that of kFiguresPartition is pushed when it is computed.
void SynchronousMode::PushFinal(Own& own, uint32_t partition_begin, uint32_t partition_end) {
  static_assert(kFiguresPartition == 0);
  const uint32_t begin =
      own.state == Own::State::kComputed ? partition_begin : std::max(partition_begin, kFiguresPartition + 1);
  Push& push = PushOf(own);
  for (uint32_t p = begin; p < partition_end; ++p) TryPush(push, p);
  if (begin < partition_end) OnPushed(own, begin, partition_end);
}

void SynchronousMode::OnSummed(const GradientSummed& event) {
  if (phase_ != Phase::kRunning) return;
  const auto first = std::find_if(own_.begin(), own_.end(),
                                  [&](const Own& o) { return o.joint != nullptr && o.joint->number == event.joint; });
  if (first == own_.end()) return;  // of replicas that were computed anew
  Push& push = PushOf(*first);
  const uint32_t end = std::min<uint32_t>(event.partition_end, context_.parts.size());
  for (uint32_t p = event.partition_begin; p < end; ++p) {
    push.summed_in[p] = static_cast<int32_t>(first - (own_.begin() + static_cast<int64_t>(push.own_begin)));
    for (size_t i = push.own_begin; i < push.own_begin + push.node.count; ++i) own_[i].ready[p] = 1;
  }
  PushFinal(*first, event.partition_begin, end);
}

void SynchronousMode::OnComputed(uint64_t work, BatchSums sums) {
  Own* own = FindWork(work);
  if (own == nullptr || own->state != Own::State::kComputing) return;
  own->state = Own::State::kComputed;
  own->sums = std::move(sums);
  PushFinal(*own, kFiguresPartition, kFiguresPartition + 1);
  if (AllDone()) {
    FinishStep();
  } else if (std::exchange(own->anew, false)) {
    StartCompute(*own);
  }
}

void SynchronousMode::OnEvaluated(uint64_t work, const BatchSums& sums) {
  Own* own = FindWork(work);
  if (own == nullptr || own->state != Own::State::kEvaluating) return;
  context_.AddValidation(own->id, step_, sums);
  own->work = 0;
  StartCompute(*own);
  if (own->state == Own::State::kComputed) PushReady(PushOf(*own));
  // Others' gradients may have made the step; it waits for what is left to be done here.
  if (AllDone()) FinishStep();
}

// Does nothing while a backward pass has announced its last gradient, but is not back yet, or a validation runs: their
// figures belong to the step.
void SynchronousMode::FinishStep() {
  for (const Own& own : own_) {
    if (own.state == Own::State::kComputing || own.state == Own::State::kEvaluating) return;
  }
  for (Own& own : own_) {
    if (own.state == Own::State::kComputed) {
      context_.reports.AddStep(own.id, step_, context_.plan.steps_per_epoch, context_.now);
    }
    Release(own);
  }
  ++step_;
  loss_scale_ = next_loss_scale_;
  finder_.EndAttempts();
  OnStepDone();
  BeginStep();
}

void SynchronousMode::ResendDue() {
  if (phase_ == Phase::kFinding) finder_.ResendDue();
  if (phase_ != Phase::kRunning) return;
  if (step_ == context_.LastOpen()) Checkpoint();  // no step may come at which it would be tried again
  for (Push& push : pushes_) {
    for (uint32_t p = 0; p < push.requests.size(); ++p) {
      if (context_.Due(push.requests[p])) SendPush(push, p);
    }
  }
  clips_.ResendDue();
  ResendMore();
}

SynchronousMode::Own* SynchronousMode::FindWork(uint64_t work) {
  const auto own = std::find_if(own_.begin(), own_.end(), [&](const Own& o) { return work != 0 && o.work == work; });
  return own == own_.end() ? nullptr : &*own;
}

bool SynchronousMode::Knows(uint64_t work) const {
  return work != 0 && std::any_of(own_.begin(), own_.end(), [&](const Own& own) { return own.work == work; });
}

SynchronousMode::Push& SynchronousMode::PushOf(const Own& own) {
  const size_t place = static_cast<size_t>(&own - own_.data());
  for (Push& push : pushes_) {
    if (place >= push.own_begin && place < push.own_begin + push.node.count) return push;
  }
  CAIRN_CHECK(false, "every own replica is in one push");
  return pushes_.front();
}

}  // namespace cairn::replica
