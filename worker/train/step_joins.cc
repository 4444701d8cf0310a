#include "worker/train/step_joins.h"

#include <algorithm>
#include <utility>

namespace cairn {

absl::StatusOr<std::shared_ptr<GradientJoin>> StepJoins::Enter(const std::shared_ptr<const replica::Joint>& joint,
                                                               const std::shared_ptr<const Graph>& graph,
                                                               const std::vector<v1::PartitionRange>& ranges) {
  absl::MutexLock lock(&mutex_);
  std::erase_if(joins_, [](const auto& each) { return each.second.joint.expired(); });
  const auto it = joins_.find(joint->number);
  if (it != joins_.end()) return it->second.join;
  JoinOptions options;
  options.node = joint->node;
  options.leaves = joint->leaves;
  for (const v1::PartitionRange& range : ranges) options.ends.push_back(static_cast<int64_t>(range.end()));
  options.type = joint->type;
  options.layout = joint->layout;
  options.into = joint->gradient;
  options.ready = [this, number = joint->number](uint32_t range) {
    summed_(replica::GradientSummed{number, range, range + 1});
  };
  CAIRN_ASSIGN_OR_RETURN(std::shared_ptr<GradientJoin> join, backend_.Join(graph, std::move(options)));
  joins_[joint->number] = {joint, join, std::count(joint->leaves.begin(), joint->leaves.end(), true)};
  return join;
}

void StepJoins::Leave(uint64_t joint) {
  absl::MutexLock lock(&mutex_);
  const auto it = joins_.find(joint);
  if (it != joins_.end() && --it->second.missing == 0) joins_.erase(it);
}

void StepJoins::Clear() {
  absl::MutexLock lock(&mutex_);
  joins_.clear();
}

}  // namespace cairn
