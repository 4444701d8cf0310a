// PartitionHost: which partitions it holds: those of the data directory, those that the coordinator assigns, those that
// are dropped.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/log.h"
#include "common/base/text.h"
#include "server/core/partition_config.h"
#include "server/node/assignment_plan.h"
#include "server/node/partition_host.h"

namespace cairn {
namespace {

std::set<std::string> AddressesOfBackups(const v1::HostPartitions& host) {
  std::set<std::string> addresses;
  for (const v1::PartitionRange& range : host.partitions()) {
    for (const v1::BackupRoute& route : range.backups()) addresses.insert(route.address());
  }
  return addresses;
}

}  // namespace

absl::Status PartitionHost::LoadHeld() {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<v1::HostPartitions> held, persistence_.ListHostedJobs());
  for (const v1::HostPartitions& host : held) {
    absl::StatusOr<Slots> slots = Load(host, {}, /*assigned=*/false);
    if (!slots.ok()) {
      LogError("job %d cannot be recovered: %s", host.job_id(), slots.status().ToString());
      if (absl::IsDataLoss(slots.status())) (void)failures_.NoteFault(slots.status());
      continue;
    }
    LogInfo("job %d: %s recovered, generation %d", host.job_id(),
            CountText(static_cast<int64_t>(slots->size()), "partition"), host.generation());
    absl::MutexLock lock(&mutex_);
    Job& job = jobs_[host.job_id()] = Job{Generation(host.generation()), false, *std::move(slots), {}};
    job.ended = host.ended();
  }
  return absl::OkStatus();
}

std::vector<v1::HeldPartitions> PartitionHost::Held() const {
  std::vector<v1::HeldPartitions> out;
  // One list per job; the store is read after the lock is released.
  std::vector<std::vector<std::shared_ptr<const PartitionSlot>>> slots;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [id, job] : jobs_) {
      v1::HeldPartitions& held = out.emplace_back();
      held.set_job_id(id);
      held.set_generation(job.generation.value);
      std::vector<std::shared_ptr<const PartitionSlot>>& of_job = slots.emplace_back();
      for (const auto& [partition, slot] : job.slots) {
        if (!slot->failed) of_job.push_back(slot);  // otherwise it lacks what it was in sync with
      }
    }
  }
  for (size_t i = 0; i < out.size(); ++i) {
    for (const auto& slot : slots[i]) DescribeHeld(*slot, out[i].add_partitions());
  }
  return out;
}

void PartitionHost::DescribeHeld(const PartitionSlot& slot, v1::HeldPartition* held) const {
  const uint64_t version = slot.version.load();
  held->set_partition(slot.config.partition.value);
  held->set_version(version);
  held->set_backup(slot.backup.load());
  held->set_version_min(version);
  held->set_in_memory(slot.in_memory.load());
  if (slot.at_rest) return;  // it has no other versions
  const absl::StatusOr<Persistence::Reach> reach = persistence_.ReachOf(slot.config, version);
  if (!reach.ok()) return LogError("%s", reach.status().ToString());
  held->set_version_min(reach->version_min);
  held->mutable_versions()->Add(reach->versions.begin(), reach->versions.end());
}

absl::StatusOr<v1::PartitionsReady> PartitionHost::Host(const v1::HostPartitions& host) {
  const Generation generation(host.generation());
  Slots present;
  std::optional<Generation> before;
  {
    absl::MutexLock lock(&mutex_);
    auto it = jobs_.find(host.job_id());
    if (it != jobs_.end()) {
      if (it->second.ended && !host.ended()) {
        return absl::FailedPreconditionError(
            absl::StrFormat("job %d has ended, in generation %d, and cannot continue: the coordinator's state is older "
                            "than this ps' data; restore it, or submit the job again",
                            host.job_id(), it->second.generation.value));
      }
      before = it->second.generation;
      present = it->second.slots;
    }
  }
  std::map<uint32_t, PartitionInMemory> in_memory;
  for (const auto& [partition, slot] : present) {
    in_memory[partition] = {slot->config.begin, slot->config.end, slot->version, slot->failed};
  }
  CAIRN_ASSIGN_OR_RETURN(const AssignmentPlan plan, PlanAssignment(host, before, in_memory));
  TakeOut(host.job_id(), plan.gone, present);
  TakeOut(host.job_id(), plan.ahead, present);
  if (plan.back_to) CAIRN_RETURN_IF_ERROR(RollBack(host, plan));
  CAIRN_RETURN_IF_ERROR(failures_.NoteFault(persistence_.SetHostedJob(plan.stored)));
  std::set<std::string> backups = AddressesOfBackups(host);
  {
    absl::MutexLock lock(&mutex_);
    // Includes the previous ones until roles are assigned.
    jobs_[host.job_id()].backups.insert(backups.begin(), backups.end());
  }
  // Not after Load: a failure while roles are assigned must be reported again to a coordinator that comes back.
  failures_.Remove(JobId(host.job_id()));
  KeepConnections();
  absl::StatusOr<Slots> loaded = Load(host, present, /*assigned=*/true);
  if (!loaded.ok()) {
    absl::MutexLock lock(&mutex_);
    auto job = jobs_.find(host.job_id());
    if (job != jobs_.end() && job->second.slots.empty()) jobs_.erase(job);
    return loaded.status();
  }
  Slots slots = *std::move(loaded);

  v1::PartitionsReady ready;
  ready.set_job_id(host.job_id());
  ready.set_generation(host.generation());
  for (const auto& [partition, slot] : slots) {
    if (!slot->failed) DescribeHeld(*slot, ready.add_partitions());  // otherwise job_error reports it
  }
  {
    absl::MutexLock lock(&mutex_);
    jobs_[host.job_id()] =
        Job{generation, true, std::move(slots), std::move(backups), host.keep(), /*kept_told=*/false, host.ended()};
  }
  KeepConnections();
  TellKept(host.job_id());
  return ready;
}

// Removes them from memory: nothing uses them from here on.
void PartitionHost::TakeOut(uint64_t job_id, const std::vector<uint32_t>& partitions, Slots& present) {
  if (partitions.empty()) return;
  std::vector<PartitionSlotPtr> gone;
  for (const uint32_t partition : partitions) gone.push_back(std::move(present.extract(partition).mapped()));
  {
    absl::MutexLock lock(&mutex_);
    auto job = jobs_.find(job_id);
    if (job != jobs_.end()) job->second.slots = present;
  }
  runner_.Remove(gone);
}

absl::Status PartitionHost::RollBack(const v1::HostPartitions& host, const AssignmentPlan& plan) {
  absl::StatusOr<Graph> graph = Graph::Build(host.spec().model());
  if (!graph.ok()) return Annotate(graph.status(), absl::StrFormat("job %d", host.job_id()));
  const auto shared = std::make_shared<const Graph>(*std::move(graph));
  const auto config_of = [&](const v1::PartitionRange& range) { return ConfigOf(host, shared, range); };
  CAIRN_RETURN_IF_ERROR(TakeBack(plan, config_of, persistence_));
  LogInfo("job %d: rolled back to version %d", host.job_id(), *plan.back_to);
  return absl::OkStatus();
}

absl::StatusOr<PartitionConfig> PartitionHost::ConfigOf(const v1::HostPartitions& host,
                                                        const std::shared_ptr<const Graph>& graph,
                                                        const v1::PartitionRange& range) const {
  CAIRN_ASSIGN_OR_RETURN(PartitionConfig config, MakePartitionConfig(host.spec(), graph, range, JobId(host.job_id()),
                                                                     Generation(host.generation())));
  config.image = image_;
  return config;
}

// Creates slots for all of host's partitions; existing ones are kept.
absl::StatusOr<PartitionHost::Slots> PartitionHost::MakeSlots(const v1::HostPartitions& host, const Slots& present) {
  const std::string where = absl::StrFormat("job %d", host.job_id());
  std::shared_ptr<const Graph> graph;  // made for the first new slot: a large model's takes longer than the rest
  Slots slots;
  for (const v1::PartitionRange& range : host.partitions()) {
    const auto it = present.find(range.partition());
    if (it != present.end()) {
      slots.insert(*it);
      continue;
    }
    if (graph == nullptr) {
      absl::StatusOr<Graph> built = Graph::Build(host.spec().model());
      if (!built.ok()) return Annotate(built.status(), where);
      graph = std::make_shared<const Graph>(*std::move(built));
    }
    absl::StatusOr<PartitionConfig> config = ConfigOf(host, graph, range);
    if (!config.ok()) return Annotate(config.status(), where);
    config->ended = config->keep = host.ended();
    slots.emplace(range.partition(), runner_.NewSlot(*std::move(config)));
  }
  return slots;
}

// Existing slots get the new generation. The others are recovered or initialized, in parallel on their lanes.
absl::StatusOr<PartitionHost::Slots> PartitionHost::Load(const v1::HostPartitions& host, const Slots& present,
                                                         bool assigned) {
  const Generation generation(host.generation());
  CAIRN_ASSIGN_OR_RETURN(Slots slots, MakeSlots(host, present));
  std::map<uint32_t, AssignEvent> roles;
  for (const v1::PartitionRange& range : host.partitions()) {
    roles[range.partition()] = {generation,  range.backup(), {range.backups().begin(), range.backups().end()},
                                host.keep(), host.ended(),   host.has_rollback_to()};
  }
  absl::Mutex failed_mutex;
  absl::Status failed;
  for (const auto& [partition, slot] : slots) {
    runner_.Post(slot, [&, slot = slot] {
      const absl::Status opened = runner_.Open(slot, generation);
      if (absl::IsDataLoss(opened)) (void)failures_.NoteFault(opened);
      if (!opened.ok()) {
        absl::MutexLock lock(&failed_mutex);
        failed = opened;
      }
      if (assigned) runner_.Run(slot, roles.at(slot->config.partition.value));
    });
  }
  runner_.WaitForLanes();
  if (failed.ok()) return slots;
  std::vector<PartitionSlotPtr> loaded;
  for (const auto& [partition, slot] : slots) {
    if (!present.contains(partition)) loaded.push_back(slot);
  }
  runner_.Remove(loaded);
  return failed;
}

void PartitionHost::KeepConnections() {
  std::set<std::string> addresses;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [id, job] : jobs_) addresses.insert(job.backups.begin(), job.backups.end());
  }
  runner_.KeepBackups(addresses);
}

absl::Status PartitionHost::Drop(JobId job) {
  Slots slots;
  failures_.Remove(job);
  {
    absl::MutexLock lock(&mutex_);
    auto it = jobs_.find(job.value);
    if (it != jobs_.end()) {
      slots = std::move(it->second.slots);
      jobs_.erase(it);
    }
  }
  std::vector<PartitionSlotPtr> gone;
  for (const auto& [partition, slot] : slots) gone.push_back(slot);
  if (!gone.empty()) runner_.Remove(gone);
  KeepConnections();
  return persistence_.DropJob(job);
}

}  // namespace cairn
