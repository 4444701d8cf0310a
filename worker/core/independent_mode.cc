#include "worker/core/independent_mode.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/model/metric_sums.h"
#include "common/model/strategy_check.h"
#include "common/tensor/summation_tree.h"

namespace cairn::replica {

void IndependentMode::OnAssigned(const std::vector<char>& moved, bool raised) {
  SetUnits();
  for (Own& own : own_) {
    if (own.requests.empty()) {
      StartPull(own, absl::ZeroDuration());
      continue;
    }
    if (own.state == Own::State::kWaiting && !context_.AtGate(own.step)) StartCompute(own);
    for (uint32_t p = 0; p < own.requests.size(); ++p) {
      if (!context_.ResendAtOnce(own.requests[p], moved[p] != 0, raised)) continue;
      own.requests[p].attempt = 0;
      SendAgain(own, p);
    }
  }
  Checkpoint();  // the last chief may not have reached it, or replicas that were behind have moved
}

// Updates the units to those of the assignment.
void IndependentMode::SetUnits() {
  std::vector<Own> former = std::exchange(own_, {});
  const int32_t group = LocalSyncOf(context_.spec);
  for (size_t i = 0; i < context_.replicas.size(); i += static_cast<size_t>(group)) {
    const int32_t first = context_.replicas[i];
    const size_t last = i + static_cast<size_t>(group) - 1;
    if (first % group != 0 || last >= context_.replicas.size() || context_.replicas[last] != first + group - 1) {
      context_.FailJob(absl::StrCat("assignment: the ", group, " replicas of a local_sync group are not together; ",
                                    "coordinator and worker are of different versions"));
      return;
    }
    const auto unit = static_cast<uint32_t>(first / group);
    const auto same = std::find_if(former.begin(), former.end(), [&](const Own& o) { return o.unit == unit; });
    if (same != former.end()) {
      own_.push_back(std::move(*same));
      former.erase(same);
      continue;
    }
    Own& own = own_.emplace_back();
    own.unit = unit;
    own.members.resize(static_cast<size_t>(group));
    for (int32_t m = 0; m < group; ++m) own.members[static_cast<size_t>(m)].id = ReplicaId(first + m);
  }
  for (Own& gone : former) {
    for (const Member& member : gone.members) context_.reports.Remove(member.id);
    Release(gone);
  }
  context_.pool.Resize(own_.empty() ? 0 : context_.space_bytes, context_.replicas.size() + 2);
}

void IndependentMode::Release(Own& own) {
  for (Buffer* buffer : {&own.values, &own.next}) {
    if (!buffer->empty()) context_.pool.Release(std::exchange(*buffer, {}));
  }
  own.joint = nullptr;
  for (Member& member : own.members) {
    if (!member.gradient.empty()) context_.pool.Release(std::exchange(member.gradient, {}));
    member.work = 0;
  }
}

// ---- a step ----

void IndependentMode::BeginStep(Own& own) {
  const size_t partitions = context_.parts.size();
  own.requests.assign(partitions, Request());
  own.summed_in.assign(partitions, -1);
  own.filled.assign(partitions, 0);
  own.filled_count = 0;
  own.clock = static_cast<uint64_t>(own.step);
  bool evaluates = false;
  for (Member& member : own.members) {
    member.work = context_.StartEvaluation(member.id, own.step, own.values);
    evaluates |= member.work != 0;
  }
  own.state = Own::State::kEvaluating;
  if (!evaluates) StartCompute(own);
}

void IndependentMode::StartCompute(Own& own) {
  if (own.step == context_.plan.total_steps) {
    Release(own);
    own.state = Own::State::kFinished;
    for (const Member& member : own.members) context_.Finish(member.id);
    return;
  }
  if (context_.AtGate(own.step)) {
    own.state = Own::State::kWaiting;
    return;
  }
  own.state = Own::State::kComputed;
  own.examples = 0;
  own.not_finite = false;
  const TreeNode node = {static_cast<uint32_t>(own.members.front().id.value),
                         static_cast<uint32_t>(own.members.size())};
  // Gradients that are clipped by norm are rounded afterwards.
  own.joint = context_.MakeJoint(node, own.step, clipping_.scopes.empty() ? context_.wire : v1::FLOAT32);
  for (Member& member : own.members) {
    member.examples = static_cast<uint64_t>(context_.plan.Places(own.step, member.id).size());
    own.examples += member.examples;
    member.ready.assign(context_.parts.size(), member.examples == 0);
    member.sums = BatchSums{0, 0, std::vector<double>(static_cast<size_t>(MetricSumCount(context_.spec)))};
    if (member.examples == 0) continue;
    own.state = Own::State::kComputing;
    member.work = context_.NewWork();
    if (own.joint == nullptr) {
      member.gradient = context_.pool.Acquire();
    } else if (own.examples == member.examples) {
      member.gradient = own.joint->gradient;  // uses the first one's gradient
    }
    context_.effects.emplace_back(Compute{member.work, member.id, own.step, own.values,
                                          own.joint == nullptr ? member.gradient : Buffer(),
                                          /*by_layer=*/false, own.loss_scale, own.joint});
  }
  if (own.examples > 0) return;
  for (uint32_t p = 0; p < context_.parts.size(); ++p) TryPush(own, p);
}

void IndependentMode::TryPush(Own& own, uint32_t partition) {
  if (own.filled[partition] || own.requests[partition].state != Request::State::kIdle) return;
  if (partition == kFiguresPartition && own.state != Own::State::kComputed) return;
  const auto ready = [partition](const Member& member) { return member.ready[partition] != 0; };
  if (std::all_of(own.members.begin(), own.members.end(), ready)) SendAgain(own, partition);
}

// The buffer that holds the members' sum in the partition's range. The sum is in the order of the summation tree, so
// that the bits do not depend on which member is ready first. The first call computes it.
const Buffer& IndependentMode::SumOf(Own& own, uint32_t partition) {
  int32_t& place = own.summed_in[partition];
  if (place < 0 && own.members.size() == 1) place = 0;
  if (place < 0) {
    const Part& part = context_.parts[partition];
    std::vector<GradientSum> leaves(own.members.size());
    for (size_t m = 0; m < leaves.size(); ++m) {
      Member& member = own.members[m];
      if (member.examples == 0) continue;
      leaves[m] = {member.gradient.mutable_floats().subspan(part.range.begin(), part.numbers()), member.examples};
    }
    GradientRounding rounding = context_.RoundingOf(partition, own.step);
    // Gradients that are clipped by norm are rounded afterwards.
    if (!clipping_.scopes.empty()) rounding.type = v1::FLOAT32;
    const TreeNode node = {static_cast<uint32_t>(own.members.front().id.value), static_cast<uint32_t>(leaves.size())};
    const GradientSum sum = SumSubtree(node, leaves, rounding);
    for (size_t m = 0; m < leaves.size(); ++m) {
      if (leaves[m].gradient.data() == sum.gradient.data()) place = static_cast<int32_t>(m);
    }
    CAIRN_CHECK(place >= 0, "the sum is in one of the leaves");
  }
  return own.members[static_cast<size_t>(place)].gradient;
}

void IndependentMode::SendAgain(Own& own, uint32_t partition) {
  Frame frame;
  if (own.state == Own::State::kPulling) {
    frame = context_.MakePull(partition);
    frame.replica_first = ReplicaId(static_cast<int32_t>(own.unit));
    frame.replica_count = 1;
    frame.sequence = own.clock;
  } else {
    const uint64_t examples = own.not_finite ? 0 : own.examples;
    frame =
        context_.MakePush(partition, {own.unit, 1}, own.step, examples, examples > 0 ? SumOf(own, partition) : Buffer(),
                          /*packed=*/own.joint != nullptr && own.joint->type == context_.wire);
    frame.version = own.versions[partition];
    frame.loss_scale = own.loss_scale;
    frame.not_finite = own.not_finite;
    if (partition == kFiguresPartition) frame.figures = FiguresOf(own).SerializeAsString();
  }
  context_.SendRequest(own.requests[partition], own.unit, std::move(frame));
}

v1::EpochFigures IndependentMode::FiguresOf(const Own& own) const {
  const TreeNode node = {static_cast<uint32_t>(own.members.front().id.value),
                         static_cast<uint32_t>(own.members.size())};
  return context_.FiguresOf(node, own.step, [&](uint32_t i) -> const BatchSums& { return own.members[i].sums; });
}

void IndependentMode::OnGradient(const GradientReady& event) {
  const auto [own, member] = FindWork(event.work);
  if (own == nullptr || own->state != Own::State::kComputing || !clipping_.scopes.empty()) return;
  const uint32_t end = std::min<uint32_t>(event.partition_end, context_.parts.size());
  for (uint32_t p = event.partition_begin; p < end; ++p) {
    member->ready[p] = 1;
    TryPush(*own, p);
  }
}

void IndependentMode::OnSummed(const GradientSummed& event) {
  const auto own = std::find_if(own_.begin(), own_.end(),
                                [&](const Own& o) { return o.joint != nullptr && o.joint->number == event.joint; });
  if (own == own_.end()) return;
  const auto first =
      std::find_if(own->members.begin(), own->members.end(), [](const Member& m) { return m.examples > 0; });
  const uint32_t end = std::min<uint32_t>(event.partition_end, context_.parts.size());
  for (uint32_t p = event.partition_begin; p < end; ++p) {
    own->summed_in[p] = static_cast<int32_t>(first - own->members.begin());
    if (!clipping_.scopes.empty()) continue;
    for (Member& member : own->members) member.ready[p] = 1;
    TryPush(*own, p);
  }
}

void IndependentMode::OnComputed(uint64_t work, BatchSums sums) {
  const auto [own, member] = FindWork(work);
  if (own == nullptr || own->state != Own::State::kComputing) return;
  member->work = 0;
  member->sums = std::move(sums);
  const auto at_work = [](const Member& m) { return m.work != 0; };
  if (std::any_of(own->members.begin(), own->members.end(), at_work)) return;
  own->state = Own::State::kComputed;
  if (clipping_.scopes.empty()) {
    TryPush(*own, kFiguresPartition);
  } else {
    CheckAndClip(*own);
  }
  FinishStep(*own);
}

// Checks and clips the members' sum, which is gathered in the first of them that has examples.
void IndependentMode::CheckAndClip(Own& own) {
  const auto first =
      std::find_if(own.members.begin(), own.members.end(), [](const Member& m) { return m.examples > 0; });
  const auto place = static_cast<int32_t>(first - own.members.begin());
  for (uint32_t p = 0; p < context_.parts.size(); ++p) {
    const Part& part = context_.parts[p];
    const Buffer& sum = SumOf(own, p);
    if (std::exchange(own.summed_in[p], place) != place) {
      const absl::Span<const float> from = sum.floats().subspan(part.range.begin(), part.numbers());
      std::copy(from.begin(), from.end(),
                first->gradient.mutable_floats().begin() + static_cast<int64_t>(part.range.begin()));
    }
  }
  AddPenaltyGradient(clipping_.penalties, own.examples, own.values.floats(), first->gradient.mutable_floats());
  own.not_finite = !ClipByNorm(clipping_.scopes, ClipNormOf(context_.spec.optimizer()), own.examples,
                               first->gradient.mutable_floats());
  for (Member& member : own.members) member.ready.assign(member.ready.size(), 1);
  for (uint32_t p = 0; p < context_.parts.size(); ++p) TryPush(own, p);
}

void IndependentMode::OnEvaluated(uint64_t work, const BatchSums& sums) {
  const auto [own, member] = FindWork(work);
  if (own == nullptr || own->state != Own::State::kEvaluating) return;
  context_.AddValidation(member->id, own->step, sums);
  member->work = 0;
  const auto at_work = [](const Member& m) { return m.work != 0; };
  if (std::none_of(own->members.begin(), own->members.end(), at_work)) StartCompute(*own);
}

void IndependentMode::OnReply(RequestName name, Reply& reply) {
  const auto own = std::find_if(own_.begin(), own_.end(), [&](const Own& o) { return o.unit == name.owner; });
  if (own == own_.end() || name.partition >= own->requests.size()) return;
  const Request& request = own->requests[name.partition];
  if (request.state != Request::State::kSent || request.token != reply.request) return;
  if (own->state == Own::State::kPulling) {
    OnPullReply(*own, name.partition, reply);
  } else {
    OnPushReply(*own, name.partition, reply);
  }
}

void IndependentMode::OnPushReply(Own& own, uint32_t partition, Reply& reply) {
  absl::Status status = reply.frame.ok() ? context_.CheckValues(*reply.frame, partition) : reply.frame.status();
  const uint64_t expected = static_cast<uint64_t>(own.step) + 1;
  if (status.ok() && reply.frame->sequence < expected) {
    status = absl::UnavailableError("the answer to a push shows values from before it");
  }
  if (absl::IsOutOfRange(status)) {
    StartPull(own, context_.Pause(own.pull_attempts++));  // the job was rolled back
    return;
  }
  if (!status.ok()) {
    context_.Retry(own.requests[partition], partition, status);
    return;
  }
  if (reply.frame->sequence > std::max(expected, own.sequences[partition])) {
    // Another worker computes this replica, and is ahead.
    StartPull(own, context_.Pause(own.pull_attempts++));
    return;
  }
  own.requests[partition] = Request();
  own.versions[partition] = reply.frame->version;
  if (own.next.empty()) own.next = context_.pool.Acquire();
  context_.CopyValues(*reply.frame, own.next);
  if (partition == 0) own.next_loss_scale = reply.frame->loss_scale;
  own.filled[partition] = 1;
  ++own.filled_count;
  FinishStep(own);
}

// Does nothing until all answers have arrived and the computation has ended.
void IndependentMode::FinishStep(Own& own) {
  if (own.filled_count < context_.parts.size() || own.state != Own::State::kComputed) return;
  for (const Member& member : own.members)
    context_.reports.AddStep(member.id, own.step, context_.plan.steps_per_epoch, context_.now);
  context_.pool.Release(std::exchange(own.values, std::exchange(own.next, {})));
  own.joint = nullptr;
  for (Member& member : own.members) {
    if (!member.gradient.empty()) context_.pool.Release(std::exchange(member.gradient, {}));
  }
  own.pull_attempts = 0;
  own.loss_scale = own.next_loss_scale;
  ++own.step;
  Checkpoint();
  BeginStep(own);
}

void IndependentMode::Checkpoint() {
  if (step() >= 0) context_.CheckpointIfDue(step(), std::nullopt);
}

void IndependentMode::ResendDue() {
  Checkpoint();  // there may be no later step at which to retry it
  for (Own& own : own_) {
    for (uint32_t p = 0; p < own.requests.size(); ++p) {
      if (own.requests[p].state != Request::State::kWaiting) continue;
      if (own.requests[p].retry_at > context_.now) {
        context_.retry_earliest = std::min(context_.retry_earliest, own.requests[p].retry_at);
      } else {
        SendAgain(own, p);
      }
    }
  }
}

int64_t IndependentMode::step() const {
  int64_t lowest = -1;
  for (const Own& own : own_) {
    if (own.step < 0) return -1;  // it is pulling: its step is unknown, and may be the lowest
    if (lowest < 0 || own.step < lowest) lowest = own.step;
  }
  return lowest;
}

std::pair<IndependentMode::Own*, IndependentMode::Member*> IndependentMode::FindWork(uint64_t work) {
  for (Own& own : own_) {
    for (Member& member : own.members) {
      if (member.work == work && work != 0) return {&own, &member};
    }
  }
  return {nullptr, nullptr};
}

bool IndependentMode::Knows(uint64_t work) const {
  return work != 0 && std::any_of(own_.begin(), own_.end(), [&](const Own& own) {
           return std::any_of(own.members.begin(), own.members.end(), [&](const Member& m) { return m.work == work; });
         });
}

}  // namespace cairn::replica
