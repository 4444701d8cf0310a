#include "worker/core/central_mode.h"

#include <algorithm>
#include <utility>

#include "common/tensor/dtype.h"

namespace cairn::replica {

// ---- values ----

// The values are of another version, or not needed. A stale work that still reads them keeps the buffer.
void CentralMode::ForgetValues() {
  uses_.clear();
  held_.assign(context_.assignment.parts.size(), Held());
  if (!step_.values.empty() && step_.values.unique()) return step_.values.Discard(0, step_.values.size());
  step_.values = context_.pool.Acquire();
}

void CentralMode::DropValues() {
  if (!held_.empty()) ForgetValues();
  held_.clear();
  step_.values = Buffer();
}

// The job is at the version that all partitions have, or had before their current one.
void CentralMode::OnAllFound() {
  const uint64_t lowest = *std::min_element(finder_.versions().begin(), finder_.versions().end());
  const uint64_t highest = *std::max_element(finder_.versions().begin(), finder_.versions().end());
  // Further apart: they were asked while the job moved on.
  if (highest > lowest + 1) return FindAgain();
  Run(lowest);
}

void CentralMode::OnWeightsWanted(const WeightsWanted& event) {
  const OwnReplica* own = replicas_.Find(event.work);
  if (phase_ != Phase::kRunning || own == nullptr || !own->at_work()) {
    context_.output.Emit(StopWork{event.work});
    return;
  }
  std::vector<uint16_t>& uses =
      uses_.try_emplace(event.work, context_.assignment.parts.size(), uint16_t{0}).first->second;
  const uint32_t end = std::min<uint32_t>(event.partition_end, context_.assignment.parts.size());
  for (uint32_t p = event.partition_begin; p < end; ++p) {
    Held& held = held_[p];
    if (uses[p]++ == 0) ++held.users;
    if (held.here) {
      context_.output.Emit(WeightsHere{event.work, p});
    } else if (held.pull.state == Request::State::kIdle) {
      SendPull(p);
    }
  }
}

void CentralMode::OnWeightsDone(const WeightsDone& event) {
  const auto uses = uses_.find(event.work);
  if (uses == uses_.end()) return;
  const uint32_t end = std::min<uint32_t>(event.partition_end, context_.assignment.parts.size());
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

// One work less needs the partition.
void CentralMode::LetGo(uint32_t partition) {
  Held& held = held_[partition];
  if (--held.users > 0) return;
  held = Held();
  const Part& part = context_.assignment.parts[partition];
  step_.values.Discard(part.range.begin() * sizeof(float), part.numbers() * sizeof(float));
}

void CentralMode::SendPull(uint32_t partition) {
  Frame frame = context_.frames.MakePull(partition);
  frame.want_version = static_cast<uint64_t>(step_.number);
  context_.requests.Send(held_[partition].pull, kValuesOwner, std::move(frame));
}

void CentralMode::OnValues(uint32_t partition, Reply& reply) {
  Held& held = held_[partition];
  if (held.pull.token != reply.request || held.pull.state != Request::State::kSent) return;
  const absl::Status status =
      reply.frame.ok() ? context_.frames.CheckValues(*reply.frame, partition) : reply.frame.status();
  const bool gone = absl::IsFailedPrecondition(status) ||
                    (status.ok() && reply.frame->version != static_cast<uint64_t>(step_.number));
  // Own replicas were computed elsewhere and the job has moved on, or it was rolled back.
  if (gone) return FindAgain();
  if (!status.ok()) return context_.requests.Retry(held.pull, partition, status);
  held.pull = Request();
  held.here = true;
  context_.frames.CopyValues(*reply.frame, step_.values);
  for (const auto& [work, counts] : uses_) {
    for (uint16_t wish = 0; wish < counts[partition]; ++wish) {  // every request is granted
      context_.output.Emit(WeightsHere{work, partition});
    }
  }
}

// ---- gradients ----

std::vector<TreeNode> CentralMode::NodesOf(const std::vector<uint32_t>& held) const {
  std::vector<TreeNode> nodes;
  nodes.reserve(held.size());
  for (uint32_t replica : held) nodes.push_back({replica, 1});
  return nodes;
}

// The payload is a copy, so that the gradient's memory can be freed at once; the copy is freed when it has been sent.
Frame CentralMode::MakePush(StepPush& push, uint32_t partition) {
  const OwnReplica& own = replicas_[push.own_begin];
  const bool packed = own.joint != nullptr;
  Frame frame =
      context_.frames.MakePush(partition, {push.node.first, 1}, step_.number, push.examples, own.gradient, packed);
  frame.reply_dtype = v1::DATA_TYPE_UNSPECIFIED;
  if (push.examples > 0 && (packed || context_.job.wire == v1::FLOAT32)) {
    frame.payload = Buffer::CopyOf(frame.payload.data(), frame.payload.size());
  }
  return frame;
}

void CentralMode::OnPushed(OwnReplica& own, uint32_t partition_begin, uint32_t partition_end) {
  const size_t element = own.joint != nullptr ? SizeOf(own.joint->type) : sizeof(float);
  for (uint32_t p = partition_begin; p < partition_end; ++p) {
    own.ready[p] = 0;
    const Part& part = context_.assignment.parts[p];
    own.gradient.Discard(part.range.begin() * element, part.numbers() * element);
  }
}

absl::Status CentralMode::CheckAnswer(const Frame& frame, uint32_t partition) const {
  const bool shows_update = frame.kind == v1::ExchangeFrame::VALUES && frame.partition.value == partition;
  return shows_update ? absl::OkStatus() : absl::UnavailableError("the answer to a push contains no update");
}

// The gradient is gone: the replica is computed again, after the pause of a request that is retried.
void CentralMode::OnPushFailed(StepPush& push, uint32_t partition, const absl::Status& status) {
  Request& again = again_[replicas_[push.own_begin].id];
  if (again.state != Request::State::kWaiting) {
    again.generation = push.requests[partition].generation;
    context_.requests.Retry(again, partition, status);
  }
  push.requests[partition] = Request();
}

void CentralMode::OnSumLost(uint32_t partition) {
  for (const StepPush& push : pushes_.all()) {
    if (push.requests[partition].state == Request::State::kIdle) ComputeAgain(replicas_[push.own_begin]);
  }
}

void CentralMode::Resend(const std::vector<char>& moved, bool raised) {
  for (uint32_t p = 0; p < held_.size(); ++p) {
    if (!context_.requests.ResendAtOnce(held_[p].pull, moved[p] != 0, raised)) continue;
    held_[p].pull.attempt = 0;
    SendPull(p);
  }
  for (const StepPush& push : pushes_.all()) {
    OwnReplica& own = replicas_[push.own_begin];
    const auto again = again_.find(own.id);
    bool lost = again != again_.end() && again->second.state == Request::State::kWaiting;
    lost |= pushes_.ForgetMoved(push, moved);
    if (!lost) continue;
    again_.erase(own.id);
    ComputeAgain(own);
  }
}

void CentralMode::ResendMore() {
  for (uint32_t p = 0; p < held_.size(); ++p) {
    if (context_.requests.Due(held_[p].pull)) SendPull(p);
  }
  for (OwnReplica& own : replicas_) {
    const auto again = again_.find(own.id);
    if (again != again_.end() && context_.requests.Due(again->second)) ComputeAgain(own);
  }
}

void CentralMode::ComputeAgain(OwnReplica& own) {
  if (const auto again = again_.find(own.id); again != again_.end()) again->second.state = Request::State::kIdle;
  own.joint = nullptr;  // the sum of a joint is announced once
  if (own.state == OwnReplica::State::kComputing) {
    own.again = true;
  } else if (own.state == OwnReplica::State::kComputed) {
    replicas_.Compute(own);
    if (own.state == OwnReplica::State::kComputed) pushes_.SendReady(own);
  }
}

void CentralMode::Release(OwnReplica& own) {
  if (own.at_work()) {
    context_.output.Emit(StopWork{own.work});
    // A slot that has not begun with it yet gets its StopWork when it asks for values.
    OnWorkEnded(own.work);
  }
  if (!own.gradient.empty()) own.gradient.Discard(0, own.gradient.size());
  again_.erase(own.id);
  replicas_.Release(own);
}

}  // namespace cairn::replica
