#include "worker/core/own_replicas.h"

#include <algorithm>
#include <utility>

#include "common/model/metric_sums.h"

namespace cairn::replica {

std::vector<OwnReplica> OwnReplicas::Assign() {
  std::vector<OwnReplica> former = std::exchange(own_, {});
  for (int32_t replica : context_.assignment.replicas) {
    const auto same =
        std::find_if(former.begin(), former.end(), [&](const OwnReplica& o) { return o.id.value == replica; });
    if (same != former.end()) {
      own_.push_back(std::move(*same));
      former.erase(same);
    } else {
      own_.emplace_back().id = ReplicaId(replica);
    }
  }
  return former;
}

void OwnReplicas::Release(OwnReplica& own) {
  if (!own.gradient.empty()) context_.pool.Release(std::exchange(own.gradient, {}));
  own.work = 0;
  own.joint = nullptr;
  own.state = OwnReplica::State::kIdle;
  own.touched = own.again = false;
}

void OwnReplicas::Begin(OwnReplica& own) {
  const StepPlan& plan = context_.schedule.plan;
  own.ready.assign(context_.assignment.parts.size(), 0);
  own.examples = step_.number < plan.total_steps ? static_cast<uint64_t>(plan.Places(step_.number, own.id).size()) : 0;
  own.work = context_.StartEvaluation(own.id, step_.number, step_.values, by_layer_);
  if (own.work == 0) return Compute(own);
  own.state = OwnReplica::State::kEvaluating;
}

void OwnReplicas::Compute(OwnReplica& own) {
  own.touched = false;
  if (step_.number == context_.schedule.plan.total_steps) {
    own.state = OwnReplica::State::kFinished;
    context_.Finish(own.id);
    return;
  }
  if (context_.schedule.AtGate(step_.number)) {
    own.state = OwnReplica::State::kWaiting;
    own.work = 0;
    return;
  }
  if (own.examples == 0) {
    own.state = OwnReplica::State::kComputed;
    own.sums = BatchSums{0, 0, std::vector<double>(static_cast<size_t>(MetricSumCount(context_.job.spec)))};
    own.ready.assign(context_.assignment.parts.size(), 1);
    return;
  }
  own.state = OwnReplica::State::kComputing;
  own.ready.assign(context_.assignment.parts.size(), 0);
  own.work = context_.NewWork();
  own.touched = own.joint != nullptr;
  if (own.joint == nullptr) {
    if (!own.gradient.empty()) context_.pool.Release(std::exchange(own.gradient, {}));
    own.gradient = context_.pool.Acquire();
  }
  context_.output.Emit(replica::Compute{own.work, own.id, step_.number, step_.values,
                                        own.joint == nullptr ? own.gradient : Buffer(), by_layer_, step_.loss_scale,
                                        own.joint});
}

void OwnReplicas::Join(const std::vector<TreeNode>& nodes) {
  size_t begin = 0;
  for (const TreeNode& node : nodes) {
    const std::shared_ptr<const Joint> joint = context_.MakeJoint(node, step_.number, context_.job.wire);
    bool first = true;
    for (uint32_t i = 0; joint != nullptr && i < node.count; ++i) {
      if (!joint->leaves[i]) continue;
      own_[begin + i].joint = joint;
      if (std::exchange(first, false)) own_[begin + i].gradient = joint->gradient;
    }
    begin += node.count;
  }
}

const OwnReplica* OwnReplicas::Find(uint64_t work) const {
  const auto own =
      std::find_if(own_.begin(), own_.end(), [&](const OwnReplica& o) { return work != 0 && o.work == work; });
  return own == own_.end() ? nullptr : &*own;
}

OwnReplica* OwnReplicas::Find(uint64_t work) {
  const OwnReplica* own = std::as_const(*this).Find(work);
  return own == nullptr ? nullptr : &own_[PlaceOf(*own)];
}

const OwnReplica* OwnReplicas::FindJoined(uint64_t joint) const {
  const auto first = std::find_if(own_.begin(), own_.end(),
                                  [&](const OwnReplica& o) { return o.joint != nullptr && o.joint->number == joint; });
  return first == own_.end() ? nullptr : &*first;
}

bool OwnReplicas::AnyAtWork() const {
  return std::any_of(own_.begin(), own_.end(), [](const OwnReplica& own) { return own.at_work(); });
}

bool OwnReplicas::AnyWaiting() const {
  const auto waits = [](const OwnReplica& own) { return own.state == OwnReplica::State::kWaiting; };
  return std::any_of(own_.begin(), own_.end(), waits);
}

std::vector<uint32_t> OwnReplicas::Numbers() const {
  std::vector<uint32_t> numbers;
  numbers.reserve(own_.size());
  for (const OwnReplica& own : own_) numbers.push_back(static_cast<uint32_t>(own.id.value));
  return numbers;
}

}  // namespace cairn::replica
