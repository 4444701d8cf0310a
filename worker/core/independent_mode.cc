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
  for (Unit& unit : units_) {
    if (unit.exchanges.empty()) {
      StartPull(unit, absl::ZeroDuration());
      continue;
    }
    if (unit.state == Unit::State::kWaiting && !context_.schedule.AtGate(unit.step)) StartCompute(unit);
    for (uint32_t p = 0; p < unit.exchanges.size(); ++p) {
      if (!context_.requests.ResendAtOnce(unit.exchanges[p].request, moved[p] != 0, raised)) continue;
      unit.exchanges[p].request.attempt = 0;
      SendAgain(unit, p);
    }
  }
  Checkpoint();  // the former chief may not have taken it, or the slowest replicas may have moved to another worker
}

// Makes the units those of the assignment.
void IndependentMode::SetUnits() {
  std::vector<Unit> former = std::exchange(units_, {});
  const std::vector<int32_t>& replicas = context_.assignment.replicas;
  const int32_t group = LocalSyncOf(context_.job.spec);
  for (size_t i = 0; i < replicas.size(); i += static_cast<size_t>(group)) {
    const int32_t first = replicas[i];
    const size_t last = i + static_cast<size_t>(group) - 1;
    if (first % group != 0 || last >= replicas.size() || replicas[last] != first + group - 1) {
      context_.output.Fail(absl::StrCat("assignment: the ", group, " replicas of a local_sync group are not together; ",
                                        "coordinator and worker are of different versions"));
      return;
    }
    const auto number = static_cast<uint32_t>(first / group);
    const auto same = std::find_if(former.begin(), former.end(), [&](const Unit& u) { return u.number == number; });
    if (same != former.end()) {
      units_.push_back(std::move(*same));
      former.erase(same);
      continue;
    }
    Unit& unit = units_.emplace_back();
    unit.number = number;
    unit.members.resize(static_cast<size_t>(group));
    for (int32_t m = 0; m < group; ++m) unit.members[static_cast<size_t>(m)].id = ReplicaId(first + m);
  }
  for (Unit& gone : former) {
    for (const Member& member : gone.members) context_.reports.Remove(member.id);
    Release(gone);
  }
  context_.pool.Resize(units_.empty() ? 0 : context_.job.space_bytes, replicas.size() + 2);
}

void IndependentMode::Release(Unit& unit) {
  for (Buffer* buffer : {&unit.current.buffer, &unit.next.buffer}) {
    if (!buffer->empty()) context_.pool.Release(std::exchange(*buffer, {}));
  }
  unit.gradient.joint = nullptr;
  for (Member& member : unit.members) {
    if (!member.gradient.empty()) context_.pool.Release(std::exchange(member.gradient, {}));
    member.work = 0;
  }
}

// ---- a step ----

void IndependentMode::BeginStep(Unit& unit) {
  for (Exchange& exchange : unit.exchanges) exchange.BeginPush();
  unit.answered = 0;
  unit.clock = static_cast<uint64_t>(unit.step);
  bool evaluates = false;
  for (Member& member : unit.members) {
    member.work = context_.StartEvaluation(member.id, unit.step, unit.current.buffer);
    evaluates |= member.work != 0;
  }
  unit.state = Unit::State::kEvaluating;
  if (!evaluates) StartCompute(unit);
}

void IndependentMode::StartCompute(Unit& unit) {
  if (unit.step == context_.schedule.plan.total_steps) {
    Release(unit);
    unit.state = Unit::State::kFinished;
    for (const Member& member : unit.members) context_.Finish(member.id);
    return;
  }
  if (context_.schedule.AtGate(unit.step)) {
    unit.state = Unit::State::kWaiting;
    return;
  }
  unit.state = Unit::State::kComputed;
  unit.gradient.examples = 0;
  unit.gradient.not_finite = false;
  const TreeNode node = {static_cast<uint32_t>(unit.members.front().id.value),
                         static_cast<uint32_t>(unit.members.size())};
  // What is clipped by norm is rounded after it.
  unit.gradient.joint = context_.MakeJoint(node, unit.step, clipping_.scopes.empty() ? context_.job.wire : v1::FLOAT32);
  for (Member& member : unit.members) {
    member.examples = static_cast<uint64_t>(context_.schedule.plan.Places(unit.step, member.id).size());
    unit.gradient.examples += member.examples;
    member.ready.assign(context_.assignment.parts.size(), member.examples == 0);
    member.sums = BatchSums{0, 0, std::vector<double>(static_cast<size_t>(MetricSumCount(context_.job.spec)))};
    if (member.examples == 0) continue;
    unit.state = Unit::State::kComputing;
    member.work = context_.NewWork();
    if (unit.gradient.joint == nullptr) {
      member.gradient = context_.pool.Acquire();
    } else if (unit.gradient.examples == member.examples) {
      member.gradient = unit.gradient.joint->gradient;  // the first
    }
    context_.output.Emit(Compute{member.work, member.id, unit.step, unit.current.buffer,
                                 unit.gradient.joint == nullptr ? member.gradient : Buffer(),
                                 /*by_layer=*/false, unit.current.loss_scale, unit.gradient.joint});
  }
  if (unit.gradient.examples > 0) return;
  for (uint32_t p = 0; p < context_.assignment.parts.size(); ++p) TryPush(unit, p);
}

void IndependentMode::TryPush(Unit& unit, uint32_t partition) {
  if (unit.exchanges[partition].answered || unit.exchanges[partition].request.state != Request::State::kIdle) return;
  if (partition == kFiguresPartition && unit.state != Unit::State::kComputed) return;
  const auto ready = [partition](const Member& member) { return member.ready[partition] != 0; };
  if (std::all_of(unit.members.begin(), unit.members.end(), ready)) SendAgain(unit, partition);
}

// The buffer that holds the sum of the members in the partition's range. The first call adds them, in the order of the
// summation tree, so that the bits do not depend on which member is ready first.
const Buffer& IndependentMode::SumOf(Unit& unit, uint32_t partition) {
  int32_t& place = unit.exchanges[partition].summed_in;
  if (place < 0 && unit.members.size() == 1) place = 0;
  if (place < 0) {
    const Part& part = context_.assignment.parts[partition];
    std::vector<GradientSum> leaves(unit.members.size());
    for (size_t m = 0; m < leaves.size(); ++m) {
      Member& member = unit.members[m];
      if (member.examples == 0) continue;
      leaves[m] = {member.gradient.mutable_floats().subspan(part.range.begin(), part.numbers()), member.examples};
    }
    GradientRounding rounding = context_.frames.RoundingOf(partition, unit.step);
    if (!clipping_.scopes.empty()) rounding.type = v1::FLOAT32;  // what is clipped by norm is rounded after it
    const TreeNode node = {static_cast<uint32_t>(unit.members.front().id.value), static_cast<uint32_t>(leaves.size())};
    const GradientSum sum = SumSubtree(node, leaves, rounding);
    for (size_t m = 0; m < leaves.size(); ++m) {
      if (leaves[m].gradient.data() == sum.gradient.data()) place = static_cast<int32_t>(m);
    }
    CAIRN_CHECK(place >= 0, "the sum is in one of the leaves");
  }
  return unit.members[static_cast<size_t>(place)].gradient;
}

void IndependentMode::SendAgain(Unit& unit, uint32_t partition) {
  Frame frame;
  if (unit.state == Unit::State::kPulling) {
    frame = context_.frames.MakePull(partition);
    frame.replica_first = ReplicaId(static_cast<int32_t>(unit.number));
    frame.replica_count = 1;
    frame.sequence = unit.clock;
  } else {
    const uint64_t examples = unit.gradient.not_finite ? 0 : unit.gradient.examples;
    frame = context_.frames.MakePush(
        partition, {unit.number, 1}, unit.step, examples, examples > 0 ? SumOf(unit, partition) : Buffer(),
        /*packed=*/unit.gradient.joint != nullptr && unit.gradient.joint->type == context_.job.wire);
    frame.version = unit.exchanges[partition].version;
    frame.loss_scale = unit.current.loss_scale;
    frame.not_finite = unit.gradient.not_finite;
    if (partition == kFiguresPartition) frame.figures = FiguresOf(unit).SerializeAsString();
  }
  context_.requests.Send(unit.exchanges[partition].request, unit.number, std::move(frame));
}

v1::EpochFigures IndependentMode::FiguresOf(const Unit& unit) const {
  const TreeNode node = {static_cast<uint32_t>(unit.members.front().id.value),
                         static_cast<uint32_t>(unit.members.size())};
  return context_.FiguresOf(node, unit.step, [&](uint32_t i) -> const BatchSums& { return unit.members[i].sums; });
}

void IndependentMode::OnGradient(const GradientReady& event) {
  const auto [unit, member] = FindWork(event.work);
  if (unit == nullptr || unit->state != Unit::State::kComputing || !clipping_.scopes.empty()) return;
  const uint32_t end = std::min<uint32_t>(event.partition_end, context_.assignment.parts.size());
  for (uint32_t p = event.partition_begin; p < end; ++p) {
    member->ready[p] = 1;
    TryPush(*unit, p);
  }
}

void IndependentMode::OnSummed(const GradientSummed& event) {
  const auto unit = std::find_if(units_.begin(), units_.end(), [&](const Unit& u) {
    return u.gradient.joint != nullptr && u.gradient.joint->number == event.joint;
  });
  if (unit == units_.end()) return;
  const auto first =
      std::find_if(unit->members.begin(), unit->members.end(), [](const Member& m) { return m.examples > 0; });
  const uint32_t end = std::min<uint32_t>(event.partition_end, context_.assignment.parts.size());
  for (uint32_t p = event.partition_begin; p < end; ++p) {
    unit->exchanges[p].summed_in = static_cast<int32_t>(first - unit->members.begin());
    if (!clipping_.scopes.empty()) continue;
    for (Member& member : unit->members) member.ready[p] = 1;
    TryPush(*unit, p);
  }
}

void IndependentMode::OnComputed(uint64_t work, BatchSums sums) {
  const auto [unit, member] = FindWork(work);
  if (unit == nullptr || unit->state != Unit::State::kComputing) return;
  member->work = 0;
  member->sums = std::move(sums);
  const auto at_work = [](const Member& m) { return m.work != 0; };
  if (std::any_of(unit->members.begin(), unit->members.end(), at_work)) return;
  unit->state = Unit::State::kComputed;
  if (clipping_.scopes.empty()) {
    TryPush(*unit, kFiguresPartition);
  } else {
    CheckAndClip(*unit);
  }
  FinishStep(*unit);
}

// Clips the sum of the members. The sum is gathered in the first member that has examples.
void IndependentMode::CheckAndClip(Unit& unit) {
  const auto first =
      std::find_if(unit.members.begin(), unit.members.end(), [](const Member& m) { return m.examples > 0; });
  const auto place = static_cast<int32_t>(first - unit.members.begin());
  for (uint32_t p = 0; p < context_.assignment.parts.size(); ++p) {
    const Part& part = context_.assignment.parts[p];
    const Buffer& sum = SumOf(unit, p);
    if (std::exchange(unit.exchanges[p].summed_in, place) != place) {
      const absl::Span<const float> from = sum.floats().subspan(part.range.begin(), part.numbers());
      std::copy(from.begin(), from.end(),
                first->gradient.mutable_floats().begin() + static_cast<int64_t>(part.range.begin()));
    }
  }
  AddPenaltyGradient(clipping_.penalties, unit.gradient.examples, unit.current.buffer.floats(),
                     first->gradient.mutable_floats());
  unit.gradient.not_finite = !ClipByNorm(clipping_.scopes, ClipNormOf(context_.job.spec.optimizer()),
                                         unit.gradient.examples, first->gradient.mutable_floats());
  for (Member& member : unit.members) member.ready.assign(member.ready.size(), 1);
  for (uint32_t p = 0; p < context_.assignment.parts.size(); ++p) TryPush(unit, p);
}

void IndependentMode::OnEvaluated(uint64_t work, const BatchSums& sums) {
  const auto [unit, member] = FindWork(work);
  if (unit == nullptr || unit->state != Unit::State::kEvaluating) return;
  context_.AddValidation(member->id, unit->step, sums);
  member->work = 0;
  const auto at_work = [](const Member& m) { return m.work != 0; };
  if (std::none_of(unit->members.begin(), unit->members.end(), at_work)) StartCompute(*unit);
}

void IndependentMode::OnReply(RequestName name, Reply& reply) {
  const auto unit = std::find_if(units_.begin(), units_.end(), [&](const Unit& u) { return u.number == name.owner; });
  if (unit == units_.end() || name.partition >= unit->exchanges.size()) return;
  const Request& request = unit->exchanges[name.partition].request;
  if (request.state != Request::State::kSent || request.token != reply.request) return;
  if (unit->state == Unit::State::kPulling) {
    OnPullReply(*unit, name.partition, reply);
  } else {
    OnPushReply(*unit, name.partition, reply);
  }
}

void IndependentMode::OnPushReply(Unit& unit, uint32_t partition, Reply& reply) {
  absl::Status status = reply.frame.ok() ? context_.frames.CheckValues(*reply.frame, partition) : reply.frame.status();
  const uint64_t expected = static_cast<uint64_t>(unit.step) + 1;
  if (status.ok() && reply.frame->sequence < expected) {
    status = absl::UnavailableError("the answer to a push shows values from before it");
  }
  if (absl::IsOutOfRange(status)) {
    StartPull(unit, context_.backoff.Pause(unit.pull_attempts++));  // the job was rolled back
    return;
  }
  if (!status.ok()) {
    context_.requests.Retry(unit.exchanges[partition].request, partition, status);
    return;
  }
  if (reply.frame->sequence > std::max(expected, unit.exchanges[partition].sequence)) {
    // Another worker computes this replica, and is ahead.
    StartPull(unit, context_.backoff.Pause(unit.pull_attempts++));
    return;
  }
  unit.exchanges[partition].request = Request();
  unit.exchanges[partition].version = reply.frame->version;
  if (unit.next.buffer.empty()) unit.next.buffer = context_.pool.Acquire();
  context_.frames.CopyValues(*reply.frame, unit.next.buffer);
  if (partition == 0) unit.next.loss_scale = reply.frame->loss_scale;
  unit.exchanges[partition].answered = 1;
  ++unit.answered;
  FinishStep(unit);
}

// Does nothing until all partitions have answered and the computation has ended.
void IndependentMode::FinishStep(Unit& unit) {
  if (unit.answered < context_.assignment.parts.size() || unit.state != Unit::State::kComputed) return;
  for (const Member& member : unit.members)
    context_.reports.AddStep(member.id, unit.step, context_.schedule.plan.steps_per_epoch, context_.output.now());
  context_.pool.Release(std::exchange(unit.current.buffer, std::exchange(unit.next.buffer, {})));
  unit.gradient.joint = nullptr;
  for (Member& member : unit.members) {
    if (!member.gradient.empty()) context_.pool.Release(std::exchange(member.gradient, {}));
  }
  unit.pull_attempts = 0;
  unit.current.loss_scale = unit.next.loss_scale;
  ++unit.step;
  Checkpoint();
  BeginStep(unit);
}

void IndependentMode::Checkpoint() {
  if (step() >= 0) context_.checkpoints.TakeIfDue(step(), std::nullopt);
}

void IndependentMode::ResendDue() {
  Checkpoint();  // there may be no later step at which it would be tried again
  for (Unit& unit : units_) {
    for (uint32_t p = 0; p < unit.exchanges.size(); ++p) {
      if (context_.requests.Due(unit.exchanges[p].request)) SendAgain(unit, p);
    }
  }
}

int64_t IndependentMode::step() const {
  int64_t lowest = -1;
  for (const Unit& unit : units_) {
    if (unit.step < 0) return -1;  // it still pulls, and may be behind all others
    if (lowest < 0 || unit.step < lowest) lowest = unit.step;
  }
  return lowest;
}

std::pair<IndependentMode::Unit*, IndependentMode::Member*> IndependentMode::FindWork(uint64_t work) {
  for (Unit& unit : units_) {
    for (Member& member : unit.members) {
      if (member.work == work && work != 0) return {&unit, &member};
    }
  }
  return {nullptr, nullptr};
}

bool IndependentMode::Knows(uint64_t work) const {
  return work != 0 && std::any_of(units_.begin(), units_.end(), [&](const Unit& unit) {
           return std::any_of(unit.members.begin(), unit.members.end(),
                              [&](const Member& m) { return m.work == work; });
         });
}

}  // namespace cairn::replica
