#include "server/node/assignment_plan.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "common/base/status.h"

namespace cairn {

absl::StatusOr<AssignmentPlan> PlanAssignment(const v1::HostPartitions& host, std::optional<Generation> present,
                                              const std::map<uint32_t, PartitionInMemory>& in_memory) {
  const Generation generation(host.generation());
  if (present && generation < *present) {
    return absl::AbortedError(
        absl::StrFormat("job %d: generation %d is older than %d", host.job_id(), generation.value, present->value));
  }
  AssignmentPlan plan;
  plan.stored = host;
  plan.stored.clear_rollback_to();
  const bool back = host.has_rollback_to() && (!present || *present < generation);
  if (back) plan.back_to = host.rollback_to();
  for (const auto& [partition, p] : in_memory) {
    const bool named = std::any_of(
        host.partitions().begin(), host.partitions().end(), [&, partition = partition, p = p](const auto& range) {
          return range.partition() == partition && static_cast<int64_t>(range.begin()) == p.begin &&
                 static_cast<int64_t>(range.end()) == p.end;
        });
    if (!named) {
      plan.gone.push_back(partition);
    } else if (back && (p.failed || p.version != host.rollback_to())) {
      plan.ahead.push_back(partition);
    }
  }
  if (!back) return plan;
  const auto leaves = [&](uint32_t partition) {
    return std::find(plan.gone.begin(), plan.gone.end(), partition) != plan.gone.end() ||
           std::find(plan.ahead.begin(), plan.ahead.end(), partition) != plan.ahead.end();
  };
  for (const v1::PartitionRange& range : host.partitions()) {
    if (!in_memory.contains(range.partition()) || leaves(range.partition())) plan.back_on_disk.push_back(range);
  }
  return plan;
}

absl::Status TakeBack(const AssignmentPlan& plan,
                      const std::function<absl::StatusOr<PartitionConfig>(const v1::PartitionRange&)>& config_of,
                      Persistence& persistence) {
  for (const v1::PartitionRange& range : plan.back_on_disk) {
    CAIRN_ASSIGN_OR_RETURN(const PartitionConfig config, config_of(range));
    CAIRN_RETURN_IF_ERROR(range.backup() ? persistence.Forget(config) : persistence.RollBack(config, *plan.back_to));
  }
  return absl::OkStatus();
}

}  // namespace cairn
