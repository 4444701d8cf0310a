#include "worker/central_mode.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/limits.h"

namespace cairn::replica {
namespace {

// Of pulls; a replica's pushes have its number + 1; of CLIPs.
constexpr uint32_t kPullOwner = 0;
constexpr uint32_t kClipOwner = kOwnersMax - 1;
static_assert(kReplicasMax < static_cast<int32_t>(kClipOwner));

uint32_t OwnerOf(ReplicaId replica) { return static_cast<uint32_t>(replica.value) + 1; }

}  // namespace

void CentralMode::OnAssigned(const std::vector<char>& moved, bool raised) {
  SetReplicas();
  if (own_.empty()) return GoIdle();
  if (phase_ == Phase::kIdle) return StartFinding(absl::ZeroDuration());
  for (uint32_t p = 0; p < context_.parts.size(); ++p) {
    Request& request = phase_ == Phase::kFinding ? finds_[p] : held_[p].pull;
    if (!context_.ResendAtOnce(request, moved[p] != 0, raised)) continue;
    request.attempt = 0;
    phase_ == Phase::kFinding ? SendFind(p) : SendPull(p);
  }
  if (phase_ != Phase::kRunning) return;
  for (uint32_t p = 0; p < clips_.size(); ++p) {
    if (moved[p] && norms_.Has(p) && !done_[p]) {
      SumLost(p);  // it was the former primary's
    } else if (context_.ResendAtOnce(clips_[p], moved[p] != 0, raised)) {
      clips_[p].attempt = 0;
      SendClip(p);
    }
  }
  for (Own& own : own_) {
    bool lost = own.again.state == Request::State::kWaiting;
    for (uint32_t p = 0; p < own.pushes.size(); ++p) {
      if (own.pushes[p].state != Request::State::kSent || !moved[p]) continue;
      own.pushes[p] = Request();
      lost = true;
    }
    if (!lost) continue;
    own.again = Request();
    ComputeAgain(own);
  }
  OpenGate();
  // The step may have waited for a replica that is another worker's now.
  if (done_count_ == context_.parts.size()) FinishStep();
}

// Own replicas become those of the assignment; what they share with the former ones goes on.
void CentralMode::SetReplicas() {
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
    StopWorkOf(gone);
    Release(gone);
  }
  context_.pool.Resize(context_.space_bytes, own_.size() + 1);
  if (phase_ != Phase::kRunning) return;
  if (step_ == context_.LastOpen()) Checkpoint();  // the last chief may not have come to it
  for (Own& own : own_) {
    if (own.state == Own::State::kIdle) StartOwn(own);
  }
}

void CentralMode::GoIdle() {
  phase_ = Phase::kIdle;
  finds_.clear();
  if (!held_.empty()) ForgetValues();
  held_.clear();
  values_ = Buffer();
  context_.pool.Resize(0, 0);
}

void CentralMode::StopWorkOf(const Own& own) {
  const bool at_work = own.state == Own::State::kEvaluating || own.state == Own::State::kComputing;
  if (at_work) context_.effects.emplace_back(StopWork{own.work});
}

void CentralMode::Release(Own& own) {
  if (!own.gradient.empty()) {
    own.gradient.Discard(0, own.gradient.size());
    context_.pool.Release(std::exchange(own.gradient, {}));
  }
  own.pushes.assign(context_.parts.size(), Request());
  own.again = Request();
  own.anew = false;
  own.work = 0;
  own.state = Own::State::kIdle;
}

// Its push may be applied, and then nobody computes the step again. Whoever does gets the same sums.
void CentralMode::ReportOpenStep(const Own& own) {
  if (phase_ != Phase::kRunning || own.state != Own::State::kComputed) return;
  context_.reports.AddOpenStep(own.id, step_, own.sums, context_.plan.steps_per_epoch);
}

// ---- finding the step: the version that all partitions have, or had before the present one ----

void CentralMode::StartFinding(absl::Duration pause) {
  for (Own& own : own_) {
    ReportOpenStep(own);
    StopWorkOf(own);
    Release(own);
  }
  phase_ = Phase::kFinding;
  ForgetValues();
  finds_.assign(context_.parts.size(), Request());
  versions_.assign(context_.parts.size(), 0);
  found_ = 0;
  for (uint32_t p = 0; p < finds_.size(); ++p) {
    if (pause > absl::ZeroDuration()) {
      context_.RetryAfter(finds_[p], pause);
    } else {
      SendFind(p);
    }
  }
}

void CentralMode::SendFind(uint32_t partition) {
  context_.SendRequest(finds_[partition], kPullOwner, context_.MakePull(partition));
}

void CentralMode::OnFound(uint32_t partition, Reply& reply) {
  Request& request = finds_[partition];
  if (request.token != reply.request || request.state != Request::State::kSent) return;
  const absl::Status status = reply.frame.ok() ? context_.CheckValues(*reply.frame, partition) : reply.frame.status();
  if (!status.ok()) return context_.Retry(request, partition, status);
  request = Request();
  versions_[partition] = reply.frame->version;
  if (++found_ < versions_.size()) return;
  const uint64_t lowest = *std::min_element(versions_.begin(), versions_.end());
  const uint64_t highest = *std::max_element(versions_.begin(), versions_.end());
  // Further apart: they were asked while the job moved on.
  if (highest > lowest + 1) return StartFinding(context_.Pause(find_attempts_++));
  step_ = static_cast<int64_t>(lowest);
  if (step_ > context_.plan.total_steps) {
    return context_.FailJob(
        "the variables have had more updates than the job has steps; drop the job and submit it anew");
  }
  phase_ = Phase::kRunning;
  for (const Own& own : own_) context_.reports.Forget(own.id, step_, context_.plan.steps_per_epoch);
  BeginStep();
}

// ---- values ----

// Of another version, or not wanted. Where a stale work still reads them it keeps the buffer.
void CentralMode::ForgetValues() {
  uses_.clear();
  held_.assign(context_.parts.size(), Held());
  if (!values_.empty() && values_.unique()) return values_.Discard(0, values_.size());
  values_ = context_.pool.Acquire();
}

void CentralMode::OnWeightsWanted(const WeightsWanted& event) {
  const auto uses = uses_.find(event.work);
  if (phase_ != Phase::kRunning || uses == uses_.end()) {
    context_.effects.emplace_back(StopWork{event.work});
    return;
  }
  const uint32_t end = std::min<uint32_t>(event.partition_end, context_.parts.size());
  for (uint32_t p = event.partition_begin; p < end; ++p) {
    Held& held = held_[p];
    if (uses->second[p]++ == 0) ++held.users;
    if (held.here) {
      context_.effects.emplace_back(WeightsHere{event.work, p});
    } else if (held.pull.state == Request::State::kIdle) {
      SendPull(p);
    }
  }
}

void CentralMode::OnWeightsDone(const WeightsDone& event) {
  const auto uses = uses_.find(event.work);
  if (uses == uses_.end()) return;
  const uint32_t end = std::min<uint32_t>(event.partition_end, context_.parts.size());
  for (uint32_t p = event.partition_begin; p < end; ++p) {
    if (uses->second[p] > 0 && --uses->second[p] == 0) LetGo(p);
  }
}

void CentralMode::OnWorkEnded(uint64_t work) {
  const auto uses = uses_.extract(work);
  if (uses.empty()) return;
  for (uint32_t p = 0; p < uses.mapped().size(); ++p) {
    if (uses.mapped()[p] > 0) LetGo(p);
  }
}

// One work less wants it.
void CentralMode::LetGo(uint32_t partition) {
  Held& held = held_[partition];
  if (--held.users > 0) return;
  held = Held();
  const Part& part = context_.parts[partition];
  values_.Discard(part.range.begin() * sizeof(float), part.numbers() * sizeof(float));
}

void CentralMode::SendPull(uint32_t partition) {
  Frame frame = context_.MakePull(partition);
  frame.want_version = static_cast<uint64_t>(step_);
  context_.SendRequest(held_[partition].pull, kPullOwner, std::move(frame));
}

void CentralMode::OnPulled(uint32_t partition, Reply& reply) {
  Held& held = held_[partition];
  if (held.pull.token != reply.request || held.pull.state != Request::State::kSent) return;
  const absl::Status status = reply.frame.ok() ? context_.CheckValues(*reply.frame, partition) : reply.frame.status();
  const bool gone = absl::IsFailedPrecondition(status) ||
                    (status.ok() && reply.frame->version != static_cast<uint64_t>(step_));
  // Our replicas were computed elsewhere and the job went on, or it was taken back.
  if (gone) return StartFinding(context_.Pause(find_attempts_++));
  if (!status.ok()) return context_.Retry(held.pull, partition, status);
  held.pull = Request();
  held.here = true;
  context_.CopyValues(*reply.frame, values_);
  for (const auto& [work, counts] : uses_) {
    if (counts[partition] > 0) context_.effects.emplace_back(WeightsHere{work, partition});
  }
}

// ---- running ----

// As MirroredMode: the version that this step leads to, which our own pushes, which come later, are needed for.
void CentralMode::Checkpoint() {
  const int64_t version = std::min(step_ + 1, context_.LastOpen());
  context_.CheckpointIfDue(version, static_cast<uint64_t>(version));
}

void CentralMode::OnCheckpointDone() {
  if (phase_ == Phase::kRunning && step_ == context_.LastOpen()) Checkpoint();
}

// An epoch was opened, or is the last one: on with what waits for it.
void CentralMode::OpenGate() {
  const auto waits = [](const Own& own) { return own.state == Own::State::kWaiting; };
  if (phase_ != Phase::kRunning || context_.AtGate(step_) || std::none_of(own_.begin(), own_.end(), waits)) return;
  Checkpoint();
  for (Own& own : own_) {
    if (waits(own)) StartCompute(own);
  }
}

void CentralMode::BeginStep() {
  Checkpoint();
  ForgetValues();
  done_.assign(context_.parts.size(), 0);
  done_count_ = 0;
  norms_.Clear();
  clips_.assign(context_.parts.size(), Request());
  for (Own& own : own_) StartOwn(own);
}

void CentralMode::StartOwn(Own& own) {
  own.pushes.assign(context_.parts.size(), Request());
  own.examples =
      step_ < context_.plan.total_steps ? static_cast<uint64_t>(context_.plan.Places(step_, own.id).size()) : 0;
  own.work = context_.StartEvaluation(own.id, step_, values_, /*by_layer=*/true);
  if (own.work == 0) return StartCompute(own);
  own.state = Own::State::kEvaluating;
  uses_[own.work].assign(context_.parts.size(), 0);
}

void CentralMode::StartCompute(Own& own) {
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
    for (uint32_t p = 0; p < context_.parts.size(); ++p) Push(own, p);
    return;
  }
  own.state = Own::State::kComputing;
  own.work = context_.NewWork();
  uses_[own.work].assign(context_.parts.size(), 0);
  if (!own.gradient.empty()) context_.pool.Release(std::exchange(own.gradient, {}));
  own.gradient = context_.pool.Acquire();
  context_.effects.emplace_back(Compute{own.work, own.id, step_, values_, own.gradient, /*by_layer=*/true});
}

void CentralMode::OnGradient(const GradientReady& event) {
  Own* own = FindWork(event.work);
  if (own == nullptr || own->state != Own::State::kComputing) return;
  const uint32_t end = std::min<uint32_t>(event.partition_end, context_.parts.size());
  for (uint32_t p = event.partition_begin; p < end; ++p) {
    Push(*own, p);
    const Part& part = context_.parts[p];
    own->gradient.Discard(part.range.begin() * sizeof(float), part.numbers() * sizeof(float));
  }
}

// The payload is a copy, so that the gradient's memory can go at once; the copy goes when it is written to the network.
void CentralMode::Push(Own& own, uint32_t partition) {
  if (done_[partition] || norms_.Has(partition) || own.pushes[partition].state == Request::State::kSent) return;
  Frame frame = context_.MakePush(partition, static_cast<uint32_t>(own.id.value), 1, step_, own.examples, own.gradient);
  if (own.examples > 0 && context_.wire == v1::FLOAT32) {
    frame.payload = Buffer::CopyOf(frame.payload.data(), frame.payload.size());
  }
  context_.SendRequest(own.pushes[partition], OwnerOf(own.id), std::move(frame));
}

void CentralMode::OnAnswer(Own* own, uint32_t partition, Reply& reply) {
  Request& request = own == nullptr ? clips_[partition] : own->pushes[partition];
  if (request.token != reply.request || request.state != Request::State::kSent) return;
  const uint64_t expected = static_cast<uint64_t>(step_) + 1;
  const bool norms = own != nullptr && reply.frame.ok() && reply.frame->kind == v1::ExchangeFrame::NORMS &&
                     reply.frame->sequence == expected;
  absl::Status status = reply.frame.status();
  if (status.ok() && !norms) status = context_.CheckValues(*reply.frame, partition);
  if (status.ok() && !norms && reply.frame->version < expected) {
    status = absl::UnavailableError("the answer to a push shows values from before it");
  }
  std::vector<uint32_t> known;  // partitions whose factors this tells
  if (status.ok() && (norms || reply.frame->version == expected)) {
    auto taken = TakeNorms(*reply.frame, partition);
    status = taken.ok() ? absl::OkStatus() : absl::UnavailableError(taken.status().message());
    if (taken.ok()) known = *std::move(taken);
  }
  if (absl::IsOutOfRange(status)) {
    StartFinding(context_.Pause(find_attempts_++));  // the job was taken back to an earlier step
  } else if (own == nullptr && absl::IsAborted(status)) {
    SumLost(partition);
  } else if (!status.ok() && own == nullptr) {
    context_.Retry(request, partition, status);
  } else if (!status.ok()) {
    Lost(*own, partition, status);
  } else if (norms) {
    request = Request();
    SendClips(known);
  } else if (reply.frame->version > expected) {
    StartFinding(absl::ZeroDuration());  // our replicas were computed elsewhere, and the job went on
  } else {
    done_[partition] = 1;
    clips_[partition] = Request();
    for (Own& each : own_) each.pushes[partition] = Request();
    if (++done_count_ == context_.parts.size()) return FinishStep();
    SendClips(known);
  }
}

// ---- clipping by norms ----

// Of NORMS, and of VALUES after an update that was made before we knew of its norms: other partitions may still wait for them.
absl::StatusOr<std::vector<uint32_t>> CentralMode::TakeNorms(const Frame& frame, uint32_t partition) {
  if (frame.scalars.empty()) {
    if (frame.kind != v1::ExchangeFrame::NORMS) return std::vector<uint32_t>();
    return absl::InvalidArgumentError(absl::StrCat("partition ", partition, ": NORMS without records"));
  }
  CAIRN_ASSIGN_OR_RETURN(std::vector<NormRecord> records, DecodeNorms(frame.scalars));
  return norms_.Set(partition, std::move(records));
}

void CentralMode::SendClips(const std::vector<uint32_t>& known) {
  for (uint32_t p : known) {
    if (!done_[p] && clips_[p].state == Request::State::kIdle) SendClip(p);
  }
}

// Does nothing while a share is missing: the norms that bring it come back to it.
void CentralMode::SendClip(uint32_t partition) {
  const auto factors = norms_.FactorsFor(partition, ClipNormOf(context_.spec.optimizer()));
  if (!factors) {
    clips_[partition] = Request();
    return;
  }
  context_.SendRequest(clips_[partition], kClipOwner,
                       context_.MakeClip(partition, step_, EncodeFactors(*factors), norms_.HashOf(partition)));
}

// The ps has no sum of the partition any more, and we no gradients.
void CentralMode::SumLost(uint32_t partition) {
  norms_.Forget(partition);
  clips_[partition] = Request();
  for (Own& own : own_) {
    if (own.pushes[partition].state == Request::State::kIdle) ComputeAgain(own);
  }
}

// The gradient is not here any more: the replica is computed again, after the pause that a request would wait.
void CentralMode::Lost(Own& own, uint32_t partition, const absl::Status& status) {
  Request& again = own.again;
  if (again.state != Request::State::kWaiting) {
    again.generation = own.pushes[partition].generation;
    context_.Retry(again, partition, status);
  }
  own.pushes[partition] = Request();
}

void CentralMode::ComputeAgain(Own& own) {
  own.again.state = Request::State::kIdle;
  if (own.state == Own::State::kComputing) {
    own.anew = true;
  } else if (own.state == Own::State::kComputed) {
    StartCompute(own);
  }
}

void CentralMode::OnComputed(uint64_t work, BatchSums sums) {
  Own* own = FindWork(work);
  if (own == nullptr || own->state != Own::State::kComputing) return;
  own->state = Own::State::kComputed;
  own->sums = std::move(sums);
  own->gradient.Discard(0, own->gradient.size());
  if (done_count_ == context_.parts.size()) {
    FinishStep();
  } else if (std::exchange(own->anew, false)) {
    StartCompute(*own);
  }
}

void CentralMode::OnEvaluated(uint64_t work, const BatchSums& sums) {
  Own* own = FindWork(work);
  if (own == nullptr || own->state != Own::State::kEvaluating) return;
  context_.AddValidation(own->id, step_, sums);
  own->work = 0;
  StartCompute(*own);
  // Where it has no examples in this step, the step may have waited for its evaluation alone.
  if (own->state == Own::State::kComputed && done_count_ == context_.parts.size()) FinishStep();
}

// Does nothing while a backward pass has announced its last gradient, but is not back yet: its figures belong to the
// step.
void CentralMode::FinishStep() {
  for (const Own& own : own_) {
    if (own.state == Own::State::kComputing || own.state == Own::State::kEvaluating) return;
  }
  for (Own& own : own_) {
    if (own.state == Own::State::kComputed) {
      context_.reports.AddStep(own.id, step_, own.sums, context_.plan.steps_per_epoch, context_.now);
    }
    Release(own);
  }
  ++step_;
  find_attempts_ = 0;
  BeginStep();
}

void CentralMode::OnReply(RequestName name, Reply& reply) {
  if (name.partition >= context_.parts.size()) return;
  if (phase_ == Phase::kFinding && name.owner == kPullOwner) return OnFound(name.partition, reply);
  if (phase_ != Phase::kRunning) return;
  if (name.owner == kPullOwner) return OnPulled(name.partition, reply);
  if (name.owner == kClipOwner) return OnAnswer(nullptr, name.partition, reply);
  if (Own* own = FindOwner(name.owner)) OnAnswer(own, name.partition, reply);
}

void CentralMode::ResendDue() {
  if (phase_ == Phase::kRunning && context_.AtGate(step_)) Checkpoint();
  const auto due = [this](const Request& request) {
    if (request.state != Request::State::kWaiting) return false;
    if (request.retry_at <= context_.now) return true;
    context_.retry_earliest = std::min(context_.retry_earliest, request.retry_at);
    return false;
  };
  for (uint32_t p = 0; phase_ == Phase::kFinding && p < finds_.size(); ++p) {
    if (due(finds_[p])) SendFind(p);
  }
  for (uint32_t p = 0; phase_ == Phase::kRunning && p < held_.size(); ++p) {
    if (due(held_[p].pull)) SendPull(p);
    if (due(clips_[p])) SendClip(p);
  }
  for (Own& own : own_) {
    if (phase_ == Phase::kRunning && due(own.again)) ComputeAgain(own);
  }
}

CentralMode::Own* CentralMode::FindWork(uint64_t work) {
  const auto own = std::find_if(own_.begin(), own_.end(), [&](const Own& o) { return work != 0 && o.work == work; });
  return own == own_.end() ? nullptr : &*own;
}

CentralMode::Own* CentralMode::FindOwner(uint32_t owner) {
  const auto own = std::find_if(own_.begin(), own_.end(), [&](const Own& o) { return OwnerOf(o.id) == owner; });
  return own == own_.end() ? nullptr : &*own;
}

bool CentralMode::Knows(uint64_t work) const {
  return work != 0 && std::any_of(own_.begin(), own_.end(), [&](const Own& own) { return own.work == work; });
}

}  // namespace cairn::replica
