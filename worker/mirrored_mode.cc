#include "worker/mirrored_mode.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/limits.h"

namespace cairn::replica {
namespace {

// Owners below it are places in pushes_.
constexpr uint32_t kClipOwner = kOwnersMax - 1;
static_assert(kReplicasMax <= static_cast<int32_t>(kClipOwner));

}  // namespace

void MirroredMode::OnAssigned(const std::vector<char>& moved, bool raised) {
  SetReplicas();
  if (own_.empty()) {
    GoIdle();
    return;
  }
  if (phase_ == Phase::kIdle) {
    StartPull(absl::ZeroDuration());
    return;
  }
  ForEachRequest([&](Request& request, uint32_t owner, uint32_t partition) {
    if (!context_.ResendAtOnce(request, moved[partition] != 0, raised)) return;
    request.attempt = 0;
    SendAgain(owner, partition);
  });
  for (uint32_t p = 0; phase_ == Phase::kRunning && p < moved.size(); ++p) {
    if (moved[p] && norms_.Has(p) && !filled_[p]) PushAgain(p);  // the sum was the former primary's
  }
  OpenGate();
  // The step may have waited for a replica that is another worker's now.
  if (phase_ == Phase::kRunning && filled_count_ == context_.parts.size()) FinishStep();
}

// Own replicas become those of the assignment; what they share with the former ones goes on.
void MirroredMode::SetReplicas() {
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
    ReportOpenStep(gone);
    context_.reports.Remove(gone.id);
    Release(gone);
  }
  context_.pool.Resize(context_.space_bytes, own_.size() + 3);
  if (phase_ != Phase::kRunning) return;
  if (step_ == context_.LastOpen()) Checkpoint();  // the last chief may not have come to it
  for (Own& own : own_) {
    if (own.state == Own::State::kIdle) StartOwn(own);
  }
  BuildPushes();
}

void MirroredMode::GoIdle() {
  phase_ = Phase::kIdle;
  pushes_.clear();
  norms_.Clear();
  clips_.clear();
  pulls_.clear();
  current_ = next_ = Buffer();
  context_.pool.Resize(0, 0);
}

void MirroredMode::Release(Own& own) {
  if (!own.gradient.empty()) context_.pool.Release(std::exchange(own.gradient, {}));
  own.work = 0;
  own.state = Own::State::kIdle;
  own.touched = false;
}

// Its push may be applied, and then nobody computes the step again. Whoever does gets the same sums.
void MirroredMode::ReportOpenStep(const Own& own) {
  if (phase_ != Phase::kRunning || own.state != Own::State::kComputed) return;
  context_.reports.AddOpenStep(own.id, step_, own.sums, context_.plan.steps_per_epoch);
}

// ---- pulling ----

void MirroredMode::StartPull(absl::Duration pause) {
  for (Own& own : own_) {
    ReportOpenStep(own);
    Release(own);
  }
  phase_ = Phase::kPulling;
  pushes_.clear();
  norms_.Clear();
  if (current_.empty() || !current_.unique()) {
    if (!current_.empty()) context_.pool.Release(std::exchange(current_, {}));
    current_ = context_.pool.Acquire();
  }
  const size_t partitions = context_.parts.size();
  pulls_.assign(partitions, Request());
  versions_.assign(partitions, 0);
  wanted_.assign(partitions, std::nullopt);
  filled_.assign(partitions, 0);
  filled_count_ = 0;
  for (uint32_t p = 0; p < partitions; ++p) {
    if (pause > absl::ZeroDuration()) {
      context_.RetryAfter(pulls_[p], pause);
    } else {
      SendPull(p);
    }
  }
}

void MirroredMode::SendPull(uint32_t partition) {
  Frame frame = context_.MakePull(partition);
  frame.want_version = wanted_[partition];
  context_.SendRequest(pulls_[partition], 0, std::move(frame));
}

void MirroredMode::OnPullReply(uint32_t partition, Reply& reply) {
  Request& request = pulls_[partition];
  if (request.token != reply.request) return;
  absl::Status status = reply.frame.ok() ? context_.CheckValues(*reply.frame, partition) : reply.frame.status();
  const bool gone = wanted_[partition] && (absl::IsFailedPrecondition(status) ||
                                           (status.ok() && reply.frame->version != *wanted_[partition]));
  if (gone) {
    // The others went on meanwhile.
    StartPull(context_.Pause(pull_attempts_++));
    return;
  }
  if (!status.ok()) {
    context_.Retry(request, partition, status);
    return;
  }
  request = Request();
  context_.CopyValues(*reply.frame, current_);
  versions_[partition] = reply.frame->version;
  filled_[partition] = 1;
  if (++filled_count_ == context_.parts.size()) OnAllPulled();
}

// Partitions are at s or s + 1 when they stand still: nobody gets beyond s + 1 before all are there. What was pulled
// from a moving job may differ by more; then the older ones are pulled again.
void MirroredMode::OnAllPulled() {
  const uint64_t lowest = *std::min_element(versions_.begin(), versions_.end());
  const uint64_t highest = *std::max_element(versions_.begin(), versions_.end());
  if (lowest == highest) {
    pull_attempts_ = 0;
    step_ = static_cast<int64_t>(lowest);
    if (step_ > context_.plan.total_steps) {
      context_.FailJob("the variables have had more updates than the job has steps; drop the job and submit it anew");
      return;
    }
    phase_ = Phase::kRunning;
    for (const Own& own : own_) context_.reports.Forget(own.id, step_, context_.plan.steps_per_epoch);
    BeginStep();
    return;
  }
  const bool cut = highest == lowest + 1;
  for (uint32_t p = 0; p < versions_.size(); ++p) {
    if (cut ? versions_[p] == lowest : versions_[p] + 1 >= highest) continue;
    wanted_[p] = cut ? std::optional<uint64_t>(lowest) : std::nullopt;
    filled_[p] = 0;
    --filled_count_;
    SendPull(p);
  }
}

// ---- running ----

// The version that this step leads to: our own push, which comes later, is needed for it, so that no partition is
// beyond. Where slow pushes are dropped another step is between. After the last step: what there is.
void MirroredMode::Checkpoint() {
  const int64_t ahead = context_.spec.backup_replicas() > 0 ? 2 : 1;
  const int64_t version = std::min(step_ + ahead, context_.LastOpen());
  context_.CheckpointIfDue(version, static_cast<uint64_t>(version));
}

// An epoch was opened, or is the last one: on with what waits for it.
void MirroredMode::OpenGate() {
  const auto waits = [](const Own& own) { return own.state == Own::State::kWaiting; };
  if (phase_ != Phase::kRunning || context_.AtGate(step_) || std::none_of(own_.begin(), own_.end(), waits)) return;
  Checkpoint();
  for (Own& own : own_) {
    if (waits(own)) StartCompute(own);
  }
  for (Push& push : pushes_) PushReady(push);
}

void MirroredMode::OnCheckpointDone() {
  if (phase_ == Phase::kRunning && step_ == context_.LastOpen()) Checkpoint();
}

void MirroredMode::BeginStep() {
  Checkpoint();
  filled_.assign(context_.parts.size(), 0);
  filled_count_ = 0;
  norms_.Clear();
  clips_.assign(context_.parts.size(), Request());
  for (Own& own : own_) StartOwn(own);
  pushes_.clear();
  BuildPushes();
}

void MirroredMode::StartOwn(Own& own) {
  own.work = context_.StartEvaluation(own.id, step_, current_);
  own.ready.assign(context_.parts.size(), 0);
  own.examples =
      step_ < context_.plan.total_steps ? static_cast<uint64_t>(context_.plan.Places(step_, own.id).size()) : 0;
  if (own.work != 0) {
    own.state = Own::State::kEvaluating;
  } else {
    StartCompute(own);
  }
}

void MirroredMode::StartCompute(Own& own) {
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
  if (!own.gradient.empty()) context_.pool.Release(std::exchange(own.gradient, {}));
  own.gradient = context_.pool.Acquire();
  context_.effects.emplace_back(Compute{own.work, own.id, step_, current_, own.gradient});
}

// The pushes of this step for the present own replicas. Nodes that were there before keep what they sent.
void MirroredMode::BuildPushes() {
  if (step_ == context_.plan.total_steps) return;
  std::vector<uint32_t> held;
  for (const Own& own : own_) held.push_back(static_cast<uint32_t>(own.id.value));
  std::vector<Push> former = std::exchange(pushes_, {});
  std::vector<size_t> anew;  // own replicas whose gradient was used in a sum that is not wanted any more
  size_t begin = 0;
  std::vector<TreeNode> nodes;
  if (context_.spec.backup_replicas() > 0) {  // a ps takes the first ones that come, replica by replica
    for (uint32_t replica : held) nodes.push_back({replica, 1});
  } else {
    nodes = MaximalNodes(held, static_cast<uint32_t>(context_.plan.replicas));
  }
  for (const TreeNode& node : nodes) {
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
        if (own_[i].touched) anew.push_back(i);
      }
    }
    pushes_.back().own_begin = begin;
    begin += node.count;
  }
  // Owners are places in pushes_; an answer to a former place must not be taken for one of the present place.
  for (Push& push : pushes_) {
    for (uint32_t p = 0; p < push.requests.size(); ++p) {
      if (push.requests[p].state == Request::State::kSent &&
          NameOf(push.requests[p].token).owner != &push - pushes_.data()) {
        SendPush(push, p);
      }
    }
  }
  for (size_t i : anew) StartCompute(own_[i]);
  for (Push& push : pushes_) PushReady(push);
}

void MirroredMode::PushReady(Push& push) {
  for (uint32_t p = 0; p < context_.parts.size(); ++p) TryPush(push, p);
}

void MirroredMode::TryPush(Push& push, uint32_t partition) {
  if (filled_[partition] || norms_.Has(partition) || push.requests[partition].state != Request::State::kIdle) return;
  for (size_t i = push.own_begin; i < push.own_begin + push.node.count; ++i) {
    if (own_[i].state != Own::State::kComputing && own_[i].state != Own::State::kComputed) return;
    if (!own_[i].ready[partition]) return;
  }
  SendPush(push, partition);
}

// The gradient buffer that holds the node's sum in the partition's range. Adds up at the first call.
Buffer& MirroredMode::SumOf(Push& push, uint32_t partition) {
  if (push.summed_in[partition] < 0) {
    const Part& part = context_.parts[partition];
    std::vector<GradientSum> leaves(push.node.count);
    for (uint32_t i = 0; i < push.node.count; ++i) {
      Own& own = own_[push.own_begin + i];
      own.touched = true;
      if (own.examples == 0) continue;
      leaves[i] = {own.gradient.mutable_floats().subspan(part.range.begin(), part.numbers()), own.examples};
    }
    const GradientSum sum = SumSubtree(push.node, leaves);
    for (uint32_t i = 0; i < push.node.count; ++i) {
      if (leaves[i].gradient.data() == sum.gradient.data()) push.summed_in[partition] = static_cast<int32_t>(i);
    }
    CAIRN_CHECK(push.summed_in[partition] >= 0, "the sum is in one of the leaves");
  }
  return own_[push.own_begin + push.summed_in[partition]].gradient;
}

void MirroredMode::SendPush(Push& push, uint32_t partition) {
  const Buffer gradient = push.examples > 0 ? SumOf(push, partition) : Buffer();
  context_.SendRequest(push.requests[partition], static_cast<uint32_t>(&push - pushes_.data()),
                       context_.MakePush(partition, push.node.first, push.node.count, step_, push.examples, gradient));
}

void MirroredMode::OnGradient(const GradientReady& event) {
  Own* own = FindWork(event.work);
  if (own == nullptr || own->state != Own::State::kComputing) return;
  const uint32_t end = std::min<uint32_t>(event.partition_end, context_.parts.size());
  for (uint32_t p = event.partition_begin; p < end; ++p) own->ready[p] = 1;
  Push& push = PushOf(*own);
  for (uint32_t p = event.partition_begin; p < end; ++p) TryPush(push, p);
}

void MirroredMode::OnComputed(uint64_t work, BatchSums sums) {
  Own* own = FindWork(work);
  if (own == nullptr || own->state != Own::State::kComputing) return;
  own->state = Own::State::kComputed;
  own->sums = std::move(sums);
  if (filled_count_ == context_.parts.size()) FinishStep();
}

void MirroredMode::OnEvaluated(uint64_t work, const BatchSums& sums) {
  Own* own = FindWork(work);
  if (own == nullptr || own->state != Own::State::kEvaluating) return;
  context_.AddValidation(own->id, step_, sums);
  own->work = 0;
  StartCompute(*own);
  if (own->state == Own::State::kComputed) PushReady(PushOf(*own));
  // Others' gradients may have made the step; it waits for what is left to be done here.
  if (filled_count_ == context_.parts.size()) FinishStep();
}

void MirroredMode::OnReply(RequestName name, Reply& reply) {
  if (name.partition >= context_.parts.size()) return;
  if (phase_ == Phase::kPulling) OnPullReply(name.partition, reply);
  if (phase_ == Phase::kRunning) OnRunningReply(name, reply);
}

void MirroredMode::OnRunningReply(RequestName name, Reply& reply) {
  const uint32_t partition = name.partition;
  const bool clip = name.owner == kClipOwner;
  if (!clip && name.owner >= pushes_.size()) return;
  Request& request = clip ? clips_[partition] : pushes_[name.owner].requests[partition];
  if (request.token != reply.request || request.state != Request::State::kSent) return;
  const uint64_t expected = static_cast<uint64_t>(step_) + 1;
  if (!clip && reply.frame.ok() && reply.frame->kind == v1::ExchangeFrame::NORMS && reply.frame->sequence == expected) {
    const auto known = TakeNorms(*reply.frame, partition);
    if (!known.ok()) return context_.Retry(request, partition, absl::UnavailableError(known.status().message()));
    request = Request();
    return SendClips(*known);
  }
  absl::Status status = reply.frame.ok() ? context_.CheckValues(*reply.frame, partition) : reply.frame.status();
  if (status.ok() && reply.frame->version < expected) {
    status = absl::UnavailableError("the answer to a push shows values from before it");
  }
  std::vector<uint32_t> known;
  if (status.ok() && reply.frame->version == expected) {
    auto taken = TakeNorms(*reply.frame, partition);
    status = taken.status();
    if (taken.ok()) known = *std::move(taken);
  }
  if (absl::IsOutOfRange(status)) {
    StartPull(context_.Pause(pull_attempts_++));  // the job was taken back to an earlier step
  } else if (clip && absl::IsAborted(status)) {
    PushAgain(partition);
  } else if (!status.ok()) {
    context_.Retry(request, partition, status);
  } else if (reply.frame->version > expected) {
    // Our replicas were computed elsewhere, and the job went on.
    StartPull(absl::ZeroDuration());
  } else {
    const int64_t step = step_;
    Fill(*reply.frame);
    if (phase_ == Phase::kRunning && step_ == step) SendClips(known);
  }
}

// Of NORMS, and of VALUES after an update that was made before we knew of its norms: other partitions may still wait for them.
absl::StatusOr<std::vector<uint32_t>> MirroredMode::TakeNorms(const Frame& frame, uint32_t partition) {
  if (frame.scalars.empty()) {
    if (frame.kind != v1::ExchangeFrame::NORMS) return std::vector<uint32_t>();
    return absl::InvalidArgumentError(absl::StrCat("partition ", partition, ": NORMS without records"));
  }
  CAIRN_ASSIGN_OR_RETURN(std::vector<NormRecord> records, DecodeNorms(frame.scalars));
  return norms_.Set(partition, std::move(records));
}

void MirroredMode::SendClips(const std::vector<uint32_t>& known) {
  for (uint32_t p : known) {
    if (!filled_[p] && clips_[p].state == Request::State::kIdle) SendClip(p);
  }
}

// Does nothing while a share is missing: who brings it comes back to it.
void MirroredMode::SendClip(uint32_t partition) {
  const auto factors = norms_.FactorsFor(partition, ClipNormOf(context_.spec.optimizer()));
  if (!factors) {
    clips_[partition] = Request();
    return;
  }
  context_.SendRequest(clips_[partition], kClipOwner,
                       context_.MakeClip(partition, step_, EncodeFactors(*factors), norms_.HashOf(partition)));
}

void MirroredMode::PushAgain(uint32_t partition) {
  norms_.Forget(partition);
  clips_[partition] = Request();
  for (Push& push : pushes_) TryPush(push, partition);
}

void MirroredMode::SendAgain(uint32_t owner, uint32_t partition) {
  if (phase_ == Phase::kPulling) {
    SendPull(partition);
  } else if (owner == kClipOwner) {
    SendClip(partition);
  } else {
    SendPush(pushes_[owner], partition);
  }
}

void MirroredMode::Fill(const Frame& frame) {
  const uint32_t partition = frame.partition.value;
  if (next_.empty()) next_ = context_.pool.Acquire();
  context_.CopyValues(frame, next_);
  filled_[partition] = 1;
  for (Push& push : pushes_) push.requests[partition] = Request();
  clips_[partition] = Request();
  if (++filled_count_ == context_.parts.size()) FinishStep();
}

// Does nothing while a backward pass has announced its last gradient, but is not back yet, or a validation runs: their figures
// belong to the step.
void MirroredMode::FinishStep() {
  for (const Own& own : own_) {
    if (own.state == Own::State::kComputing || own.state == Own::State::kEvaluating) return;
  }
  for (Own& own : own_) {
    if (own.state == Own::State::kComputed) {
      context_.reports.AddStep(own.id, step_, own.sums, context_.plan.steps_per_epoch, context_.now);
    }
    Release(own);
  }
  context_.pool.Release(std::exchange(current_, std::exchange(next_, {})));
  ++step_;
  BeginStep();
}

void MirroredMode::ResendDue() {
  if (phase_ == Phase::kRunning && context_.AtGate(step_)) Checkpoint();
  ForEachRequest([&](Request& request, uint32_t owner, uint32_t partition) {
    if (request.state != Request::State::kWaiting) return;
    if (request.retry_at > context_.now) {
      context_.retry_earliest = std::min(context_.retry_earliest, request.retry_at);
    } else {
      SendAgain(owner, partition);
    }
  });
}

template <typename F>
void MirroredMode::ForEachRequest(F f) {
  if (phase_ == Phase::kPulling) {
    for (uint32_t p = 0; p < pulls_.size(); ++p) f(pulls_[p], 0, p);
  } else {
    for (uint32_t i = 0; i < pushes_.size(); ++i) {
      for (uint32_t p = 0; p < pushes_[i].requests.size(); ++p) f(pushes_[i].requests[p], i, p);
    }
    for (uint32_t p = 0; p < clips_.size(); ++p) f(clips_[p], kClipOwner, p);
  }
}

MirroredMode::Own* MirroredMode::FindWork(uint64_t work) {
  for (Own& own : own_) {
    if (own.work == work && work != 0) return &own;
  }
  return nullptr;
}

bool MirroredMode::Knows(uint64_t work) const {
  return work != 0 && std::any_of(own_.begin(), own_.end(), [&](const Own& own) { return own.work == work; });
}

MirroredMode::Push& MirroredMode::PushOf(const Own& own) {
  const size_t place = static_cast<size_t>(&own - own_.data());
  for (Push& push : pushes_) {
    if (place >= push.own_begin && place < push.own_begin + push.node.count) return push;
  }
  CAIRN_CHECK(false, "every own replica is in one push");
  return pushes_.front();
}

}  // namespace cairn::replica
